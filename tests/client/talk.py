"""A session and its peer in one process: dialogues as text, with the user's doings as Python between them.

    > {c1} consume --confirm q1 e1     what the session says now: all of it, in this order
    < {c1} ok m1 event=e1 d1           what the peer says; lines that follow each other come as one input
    * connected                        or lost, tick (it goes on), dead (a tick that says that the connection is)

A name in braces is an id. Where it is used first it stands for what the session made of it, which must be new; from
then on it is the same. `␠` is a space at the end of a line, `> (nothing)` says that there is nothing to say. The peer's
input comes whole, byte by byte or cut at random: that must not matter.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import count, groupby
from typing import Any

from mqks.client.errors import MqksError
from mqks.client.session import Session
from mqks.client.wanted import Wanted, WantedConsumer, WantedHistory, WantedReceiver

NAME = re.compile(r"\{(\w+)\}")


class Taken:
    """Whoever wanted something: what came, and how it ended. A quick one takes at once, a slow one when told to."""

    def __init__(self, session: Session, quick: bool) -> None:
        self.session = session
        self.quick = quick
        self.wanted: Any  # a Wanted of any kind
        self.items: list[Any] = []
        self.size = 0
        self.said_ok = 0
        self.ends: list[MqksError | None] = []

    def want(self, wanted: Wanted) -> "Taken":
        self.wanted = wanted
        wanted.ready = self.ready
        self.session.want(wanted)
        return self

    def ready(self) -> None:
        self.said_ok += 1

    def deliver(self, items: list[Any], size: int) -> None:
        self.items += items
        self.size += size
        if self.quick:
            self.take()

    def take(self) -> None:
        size, self.size = self.size, 0
        self.session.taken(self.wanted, size)

    @property
    def shown(self) -> list[str]:
        return [f"{item.id} {item.event} {item.data}" for item in self.items]


class Talk:
    def __init__(self, cut: Callable[[bytes], Iterable[bytes]]) -> None:
        self.session = Session(ids=map("id{}".format, count()).__next__, rng=random.Random(1))
        self.cut = cut
        self.names: dict[str, str] = {}

    def __call__(self, script: str) -> None:
        lines = [line.strip().replace("␠", " ") for line in script.strip().splitlines()]
        for kind, group in groupby(filter(None, lines), lambda line: line[0]):
            said = [line[2:] for line in group]
            {">": self.hears, "<": self.says, "*": self.does}[kind](said)
            self.session.write_notes()

    def hears(self, expected: list[str]) -> None:
        said = self.session.outgoing().decode("utf-8", "surrogateescape").splitlines()
        if expected == ["(nothing)"]:
            expected = []
        for line, wanted in zip(said, expected, strict=False):
            self._learn(wanted, line)
        assert said == [self.put(line) for line in expected]

    def says(self, lines: list[str]) -> None:
        text = "".join(f"{self.put(line)}\n" for line in lines)
        for piece in self.cut(text.encode("utf-8", "surrogateescape")):
            self.session.received(piece)

    def does(self, steps: list[str]) -> None:
        for step in steps:
            if step in ("tick", "dead"):
                assert self.session.tick() is (step == "tick"), step
            else:
                {"connected": self.session.made, "lost": self.session.lost}[step]()

    def put(self, text: str) -> str:
        """With the ids that the names stand for."""
        return NAME.sub(lambda name: self.names.get(name[1], name[0]), text)

    def _learn(self, wanted: str, line: str) -> None:
        pattern = NAME.sub(r"(?P<\1>\\S+?)", re.escape(wanted).replace(r"\{", "{").replace(r"\}", "}"))
        fresh = [name for name in NAME.findall(wanted) if name not in self.names]
        found = re.fullmatch(pattern, line) if fresh else None
        for name in fresh if found else ():
            assert found is not None
            assert found[name] not in self.names.values(), f"{name} is no new id: {line}"
            self.names[name] = found[name]

    # What users want

    def consumer(self, queue: str, events: Iterable[str] = (), *, quick: bool = True, **options: Any) -> Taken:
        taken = Taken(self.session, quick)
        return taken.want(WantedConsumer(queue, events, deliver=taken.deliver, ended=taken.ends.append, **options))

    def receiver(self, queue: str, pattern: dict[str, Any], **options: Any) -> Taken:
        taken = Taken(self.session, quick=True)
        return taken.want(WantedReceiver(queue, pattern, deliver=taken.deliver, ended=taken.ends.append, **options))

    def history(self, start: str, *, quick: bool = True, **options: Any) -> Taken:
        taken = Taken(self.session, quick)
        asked: dict[str, Any] = {"to": None, "events": (), "limit": None, "follow": False, **options}
        return taken.want(WantedHistory(start, deliver=taken.deliver, ended=taken.ends.append, **asked))


def whole(data: bytes) -> Iterator[bytes]:
    yield data


def byte_by_byte(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


def at_random(data: bytes) -> Iterator[bytes]:
    rng = random.Random(data)
    while data:
        size = rng.randint(1, rng.choice((3, 30, len(data))))
        yield data[:size]
        data = data[size:]


CUTS = (whole, byte_by_byte, at_random)
