"""Witnesses of the simulation: they read, by other means than the session, what it is told, says and logs."""

import contextlib
import logging
import re
from collections.abc import Iterator, Sequence

from tests.client.driver import SimDriver
from tests.client.network import Wire
from tests.client.users import Ledger, User
from tests.sim.links import Violation

AT_RISK = re.compile(r"publishes without confirm that may be lost with it: (-?\d+)")


class Witness:
    """Of one session."""

    def __init__(self, driver: SimDriver, users: Sequence[User], ledger: Ledger) -> None:
        self.driver = driver
        self.users = users
        self.ledger = ledger
        self.crowded: set[int] = set()  # lives of the broker that took an old connection for another client
        self._rests: dict[Wire, bytes] = {}
        self._wires: dict[str, Wire] = {}  # by id of what is wanted
        driver.heard, driver.changed, driver.says = self.heard, self.changed, self.says

    def _by_id(self) -> dict[str, User]:
        return {user.wanted.id: user for user in self.users if user.wanted.id}

    def heard(self, data: bytes) -> None:
        """The session is about to be told this."""
        wire = self.driver.wire
        assert wire is not None
        users = self._by_id()
        *lines, self._rests[wire] = (self._rests.get(wire, b"") + data).split(b"\n")
        for line in lines:
            id, word, answer = [*line.decode().split(" ", 2), ""][:3]
            if word == "error":
                raise Violation(f"{self.driver.name} was refused something: {line!r}")
            if user := users.get(id):
                if self._wires.setdefault(id, wire) is not wire:
                    raise Violation(f"the id {id} is used on two connections")
                user.expect(answer)

    def changed(self) -> None:
        """It was."""
        for user in self.users:
            user.check()

    def says(self, data: bytes) -> None:
        """It is about to say this."""
        users, connection = self._by_id(), len(self.driver.wires)
        for line in data.decode().splitlines():
            id, *words = line.split(" ")
            if sent := self.ledger.sent.get(id):
                if sent.connection == connection:
                    raise Violation(f"sent twice over one connection: {sent}")
                sent.connection = connection
            elif (user := users.get(id)) and id not in user.ids:
                user.ids.add(id)
                user.stated(words)
        if sum(wire.broker_open for wire in self.driver.wires) > 1:
            self.crowded.add(self.driver.wires[-1].life)


class Ear(logging.Handler):
    """Hears how many publishes were said to be at risk; all else that is logged in bad weather is no news."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.at_risk = 0

    def emit(self, record: logging.LogRecord) -> None:
        if found := AT_RISK.search(record.getMessage()):
            if int(found[1]) <= 0:
                raise Violation(record.getMessage())
            self.at_risk += int(found[1])


@contextlib.contextmanager
def listening(ear: Ear) -> Iterator[None]:
    """Nobody else hears what is logged."""
    logger = logging.getLogger("mqks")
    logger.addHandler(ear)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = propagates
        logger.removeHandler(ear)
