"""The client's state machine, without I/O: bytes in, bytes and callbacks out. Both clients are thin drivers around it.

What it keeps, whatever happens to the connection:
- wanted: consumers, receivers and histories. On each connect they are asked for again, with fresh ids, as the broker's
  last --update had them; one that is refused then is asked for again until it is accepted.
- pending: requests whose answer somebody waits for. Those that may be repeated are sent again on the next connection;
  those that speak of the old one (ack, reject) fail.
- out: lines not yet given to the transport. Publishes wait there while the broker is away; `size` tells how much it is.
  What was given to the transport without asking for a confirm is at risk until a later request is answered.

It never stops reading: a consumer of which too much waits unread is paused at the broker, so answers, pings and the
other consumers of the connection go on. The driver calls `tick` each `keep_alive` seconds, whatever handlers do.
"""

import logging
import random
from collections.abc import Callable

from mqks.client.errors import ConnectionLost, MqksError, Refused
from mqks.client.message import Message, to_text
from mqks.client.wanted import Wanted
from mqks.dtid import Ids
from mqks.names import is_event, is_name

log = logging.getLogger("mqks.client")

MOST_WAITING = 4 << 20  # bytes for one consumer that nobody has taken; beyond it is paused
MOST_KNOWN = 10_000  # names of events that were checked
FIRST_DELAY, LONGEST_DELAY = 0.05, 1.0  # seconds between attempts to connect

Done = Callable[[str | MqksError], None]


class Request:
    """A line whose answer somebody waits for."""

    __slots__ = ("after", "again", "done", "line")

    def __init__(self, line: str, again: bool, done: Done, after: int) -> None:
        self.line = line
        self.again = again
        self.done = done
        self.after = after  # so many publishes without confirm: its answer tells that they were read


class Session:
    def __init__(self, *, ids: Callable[[], str] | None = None, rng: random.Random | None = None) -> None:
        self.new_id = ids or Ids()
        self.scope = f"client-{self.new_id()}-{(rng or random.Random()).getrandbits(64):016x}"
        self.connected = False
        self.size = 0
        self._rng = rng or random.Random()
        self._attempts = 0
        self._out: list[str] = []
        self._rest = b""
        self._pending: dict[str, Request] = {}
        self._wanted: dict[Wanted, None] = {}
        self._links: dict[str, Wanted] = {}
        self._known: set[str] = set()
        self._settle_id = self.new_id()
        self._heard = True
        self._unconfirmed = 0  # publishes without confirm that were put into `out`
        self._refused = 0  # requests for which nobody waits, since the last tick
        self._arrived = 0  # so many of them were read by the broker, or were lost and said to be

    # What the user asks for

    def publish(self, event: str, data: object, id: str | None = None, done: Done | None = None, once: str = "") -> str:
        """Answers the message's id. Without `done` nobody waits. `once`: the flag `--once[=scope]`, or nothing."""
        if event not in self._known:
            self._check(event)
        if (
            type(data) is not str
            or not data.isascii()
            or "\n" in data
            or "\t" in data
            or "\0" in data
            or data[-1:] == "\r"
        ):
            data = to_text(data)
        id = self.new_id() if id is None else self._checked(id)
        flags = "--confirm " if done else ""
        if once:
            flags += f"{once} "
        self._out.append(line := f"{id} publish {flags}{event} {data}\n")
        self.size += len(line)
        if done is None:
            self._unconfirmed += 1
        else:
            self._pending[id] = Request(line, True, done, self._unconfirmed)
        return id

    def send(self, event: str, id: str | None = None, done: Done | None = None, once: str = "") -> str:
        """The same for SEVX, with the event as JSON."""
        id = self.new_id() if id is None else self._checked(id)
        self._say(id, f"send {once} {event}" if once else f"send {event}")
        if done is None:
            self._unconfirmed += 1
        else:
            self._pending[id] = Request(self._out[-1], True, done, self._unconfirmed)
        return id

    def _checked(self, id: str) -> str:
        if not is_name(_bytes(id)):
            raise ValueError(f"{id!r} is no id for a message: no spaces, and not -, --… or {{…")
        if id in self._pending:
            raise ValueError(f"a message {id!r} waits for its confirm already")
        return id

    def _check(self, event: str) -> None:
        if not is_event(_bytes(event)):
            raise ValueError(f"{event!r} is no name for an event: no spaces, not -, --… or {{…, no ,retry=… at its end")
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known.add(event)

    def ask(self, request: str, done: Done, *, again: bool = True) -> str:
        """Action and data with one answer. `again`: may be sent once more if the connection goes before the answer."""
        if "\n" in request:
            raise ValueError("a request is one line")
        _bytes(request)
        if not again and not self.connected:
            done(ConnectionLost(f"there is no connection for {_shown(request)!r}"))
            return ""
        id = self.new_id()
        self._say(id, request)
        self._pending[id] = Request(self._out[-1], again, done, self._unconfirmed)
        return id

    def forget(self, id: str) -> None:
        """Nobody waits for this answer any more, so it is not asked for again. What was sent may still be done."""
        request = self._pending.pop(id, None)
        if request and request.line in self._out:
            self._out.remove(request.line)
            self.size -= len(request.line)

    def want(self, wanted: Wanted) -> None:
        self._wanted[wanted] = None
        if self.connected:
            self._state(wanted)

    def unwant(self, wanted: Wanted) -> None:
        """Leave, and forget it."""
        if wanted in self._wanted:
            if wanted.id:
                self._say(self._settle_id, wanted.leave())
            self._drop(wanted, None)

    def delete_queue(self, queue: str) -> None:
        """The user is about to delete it: its consumers here are not wanted any more."""
        for wanted in [wanted for wanted in self._wanted if wanted.queue == queue]:
            self._drop(wanted, None)

    def taken(self, wanted: Wanted, size: int) -> None:
        """The user has taken this much of what was delivered."""
        wanted.waiting -= size
        if wanted.paused and wanted.waiting <= MOST_WAITING // 2:
            wanted.paused = False
            if wanted.id:
                self._state(wanted)

    def settle(self, wanted: Wanted, message: Message | None, action: str, done: Done | None = None) -> bool:
        """Ack or reject a message, or with None all of this consumer's. False: the connection that it came over is
        gone, and the broker gives it again."""
        if not wanted.id or (message is not None and message.consumer_id != wanted.id):
            return False
        request = wanted.settle(action, message.id if message else None)
        if done is None:
            self._say(self._settle_id, request)
        else:
            self.ask(request if request[-1] == "}" else f"{request} --confirm", done, again=False)
        return True

    # What the transport tells

    def connect_failed(self) -> float:
        """Seconds to wait before the next attempt."""
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(self._attempts, 10))
        self._attempts += 1
        return delay * self._rng.uniform(0.5, 1.0)

    def made(self) -> None:
        """A connection stands: say again all that is wanted and not answered."""
        self.connected = True
        unsent, self._out = self._out, []
        waits_in_out = {line.partition(" ")[0] for line in unsent}
        for wanted in self._wanted:
            self._state(wanted)
        again = [request.line for id, request in self._pending.items() if id not in waits_in_out]
        if repeated := sum(" publish --confirm " in line[:100] and "--once" not in line[:200] for line in again):
            log.warning("publishes without an answer that are sent again, and may arrive twice: %d", repeated)
        self._out += again + unsent
        self.size = sum(map(len, self._out))
        self._ping()

    def outgoing(self) -> bytes:
        """What to send now; the transport has it from here on."""
        if not self._out or not self.connected:
            return b""
        data = "".join(self._out).encode("utf-8", "surrogateescape")
        self._out.clear()
        self.size = 0
        return data

    def received(self, data: bytes) -> None:
        self._heard = True
        self._attempts = 0
        if self._rest:
            data = self._rest + data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        if not end:
            return
        links = self._links
        touched: list[Wanted] = []
        try:
            for line in data[: end - 1].decode("utf-8", "surrogateescape").split("\n"):
                id, _, answer = line.partition(" ok ")
                wanted = links.get(id)
                if wanted is None or not answer:
                    self._answer(line)
                    continue
                item = wanted.read(answer)
                if item is None:
                    self._heed(wanted)
                else:
                    if not wanted.batch:
                        touched.append(wanted)
                    wanted.batch.append(item)
        finally:
            for wanted in touched:
                self._deliver(wanted, end // len(touched))

    def tick(self) -> bool:
        """Each keep_alive seconds; False: nothing was heard for one of them after a ping, the connection is dead."""
        if not self._heard:
            return False
        for wanted in self._wanted:
            if wanted.refused:
                self._state(wanted)
        if self._refused > 1:
            log.warning("the broker refused more requests or messages for which nobody waits: %d", self._refused - 1)
        self._refused = 0
        self._ping()
        return True

    def lost(self) -> None:
        """The connection is gone: keep what can be said again, end the rest."""
        self.connected = False
        self._rest = b""
        self._links.clear()
        for wanted in self._wanted:
            wanted.lost()
        failed = [id for id, request in self._pending.items() if not request.again]
        unanswered = [self._pending.pop(id) for id in failed]
        self._out = [line for line in self._out if _is_publish(line) or line.partition(" ")[0] in self._pending]
        self.size = sum(map(len, self._out))
        unsent = sum(1 for line in self._out if line.partition(" ")[0] not in self._pending)
        if at_risk := self._unconfirmed - unsent - self._arrived:
            log.warning("connection lost; publishes without confirm that may be lost with it: %d", at_risk)
        self._arrived = self._unconfirmed - unsent
        for request in unanswered:
            request.done(ConnectionLost(f"the connection went before {_shown(request.line)!r} was answered"))

    def end(self, error: MqksError) -> None:
        """The client closes: nobody shall wait any more."""
        if unsent := sum(1 for line in self._out if _is_publish(line)):
            log.warning("publishes that were never sent, since the broker was away: %d", unsent)
        self._out.clear()
        self.size = 0
        pending, self._pending = list(self._pending.values()), {}
        for request in pending:
            request.done(error)
        for wanted in list(self._wanted):
            self._drop(wanted, None)

    # Inside

    def _say(self, id: str, request: str) -> None:
        line = f"{id} {request}\n"
        self._out.append(line)
        self.size += len(line)

    def _state(self, wanted: Wanted) -> None:
        """Ask for it; under the same id where it has one, which changes its options."""
        if not wanted.id:
            wanted.id = self.new_id()
            self._links[wanted.id] = wanted
        wanted.refused = False
        self._say(wanted.id, wanted.request())

    def _drop(self, wanted: Wanted, error: MqksError | None) -> None:
        del self._wanted[wanted]
        self._links.pop(wanted.id, None)
        wanted.id = ""
        wanted.ended(error)

    def _heed(self, wanted: Wanted) -> None:
        """An answer that was for us and not for the user."""
        if wanted.restate:
            wanted.restate = False
            self._state(wanted)
        elif wanted.finished:
            if wanted.batch:
                self._deliver(wanted, 0)
            self._drop(wanted, None)
        elif wanted.paused and not wanted.batch:
            self.taken(wanted, 0)  # a page ended that was taken before its end came

    def _deliver(self, wanted: Wanted, size: int) -> None:
        batch, wanted.batch = wanted.batch, []
        if not batch:
            return
        wanted.waiting += size
        wanted.deliver(batch, size)
        if wanted.can_pause and wanted.waiting > MOST_WAITING and wanted.id and not wanted.paused:
            wanted.paused = True
            self._state(wanted)

    def _answer(self, line: str) -> None:
        """Of a request, or the first one of something wanted."""
        id, _, rest = line.partition(" ")
        word, _, data = rest.partition(" ")
        wanted, request = self._links.get(id), self._pending.pop(id, None)
        if request and request.after > self._arrived:
            self._arrived = request.after
        if word == "ok":
            if wanted:
                wanted.accepted = True
                wanted.ready()
            elif request:
                request.done(data)
        elif request:
            request.done(Refused(_shown(request.line), data))
        elif wanted:
            self._refuse(wanted, data)
        else:
            self._refused += 1
            if self._refused == 1:  # of many only the number is told, with the next tick
                log.warning("the broker refused the request or message %s: error %s; its log says why", id, data)

    def _refuse(self, wanted: Wanted, error_id: str) -> None:
        error = Refused(wanted.request(), error_id)
        if not wanted.accepted:
            self._drop(wanted, error)
            return
        wanted.refused = True
        log.warning("%s; asking again", error)

    def _ping(self) -> None:
        self._heard = False
        self.ask("ping keep-alive", _nobody, again=False)


def _nobody(_: str | MqksError) -> None:
    """Nobody waits for this answer."""


def _is_publish(line: str) -> bool:
    return line.split(" ", 2)[1] in ("publish", "send")


def _shown(line: str) -> str:
    """A request without what is long or changes."""
    return line.rstrip("\n")[:100]


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
