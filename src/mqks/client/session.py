"""The client's state machine, without I/O: bytes in, bytes and callbacks out. Both clients are thin drivers around it.

What it keeps, whatever happens to the connection:
- wanted: consumers, receivers and histories. On each connect they are asked for again, with fresh ids, as the broker's
  last --update had them; one that is refused then is asked for again until it is accepted.
- pending: requests whose answer somebody waits for. Those that may be repeated are sent again on the next connection;
  those that speak of the old one (ack, reject) fail.
- out: lines not yet given to the transport. Publishes wait there while the broker is away; `size` tells how much it is.
  What was given to the transport without asking for a confirm is at risk until it, or a later request, is answered.

It never stops reading: a consumer of which too much waits unread is paused at the broker, so answers, pings and the
other consumers of the connection go on. The driver calls `tick` each `keep_alive` seconds, whatever handlers do.

A consumer that nobody holds any more is left in the middle of anything here, when Python finds that out: so loops over
what is wanted run over copies.
"""

import logging
import random
from collections import deque
from collections.abc import Callable

from mqks.client import protocol
from mqks.client.errors import ConnectionLost, MqksError, Refused
from mqks.client.message import to_text
from mqks.client.protocol import parse_reply
from mqks.client.wanted import Wanted, WantedMessages
from mqks.client.wire import Ids, Lines, Message, Reader
from mqks.names import is_event, is_name

log = logging.getLogger("mqks.client")

MOST_WAITING = 4 << 20  # bytes for one consumer that nobody has taken; beyond it is paused
MOST_FORGOTTEN = 1000  # requests that may wait to be sent though nobody waits for them
FIRST_DELAY, LONGEST_DELAY = 0.05, 1.0  # seconds between attempts to connect

Done = Callable[[str | MqksError], None]


class Request:
    """A line whose answer somebody waits for."""

    __slots__ = ("after", "again", "done", "line", "may_repeat")

    def __init__(self, line: str, again: bool, done: Done, after: int, may_repeat: bool = False) -> None:
        self.line = line
        self.again = again
        self.done = done
        self.may_repeat = may_repeat  # a message that is there twice if it is sent again
        self.after = after  # so many publishes without confirm: its answer tells that they were read


class Session:
    def __init__(
        self,
        *,
        ping: str = "ping keep-alive",
        ids: Callable[[], str] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._ping_request = ping
        self.new_id = ids or Ids()
        self.scope = f"client-{self.new_id()}-{(rng or random.Random()).getrandbits(64):016x}"  # nosec B311  # unlike others, not secret
        self.connected = False
        self.out = Lines(self.new_id)
        self._rng = rng or random.Random()  # nosec B311  # for delays
        self._attempts = 0
        self._rest = b""
        self._pending: dict[str, Request] = {}
        self._sent_events: dict[str, int] = {}  # SEVX sends nobody waits for, not answered yet: id → `unconfirmed` then
        self._wanted: dict[Wanted, None] = {}
        self._links: dict[bytes, Wanted] = {}
        self._reader = Reader(self._links, self._line)
        self._heard = True
        self._touched: list[Wanted] = []  # those whose batch has something of the piece that is read now
        self._forgotten: set[str] = set()  # ids of requests that may still stand in `out`
        self._notes: deque[tuple[str, tuple[object, ...]]] = deque()
        self._refused = 0  # requests for which nobody waits, since the last tick
        self._arrived = 0  # publishes without confirm that the broker has read, or that were said to be lost

    @property
    def size(self) -> int:
        """Of what waits to be sent."""
        return self.out.size

    def note(self, text: str, *words: object) -> None:
        """Something for the log. The driver writes it there when it holds no lock: handlers are users' code, and may
        well publish what they are given."""
        self._notes.append((text, words))

    def write_notes(self) -> None:
        while self._notes:
            text, words = self._notes.popleft()
            log.warning(text, *words)

    # What the user asks for

    def publish(self, event: str, data: object, id: str | None = None, done: Done | None = None, once: str = "") -> str:
        """Answers the message's id. Without `done` nobody waits. `once`: the flag `--once[=scope]`, or nothing."""
        if done is None and id is None and not once and (sent := self.out.publish(event, data)):
            return sent
        event = str.__str__(event)  # an enum's value, not its name
        if not self.out.is_good(event, data):
            if not is_event(protocol.encode(event)):
                raise ValueError(
                    f"{event!r} is no name for an event: no spaces, not -, --… or {{…, no ,retry=… at its end"
                )
            self.out.know(event)
            data = to_text(data)
        request = protocol.publish(event, data, confirm=done is not None, once=once)  # type: ignore[arg-type]  # it is text by now
        return self._put(id, request, done, not once)

    def send(self, event: str, id: str | None = None, done: Done | None = None, once: str = "") -> str:
        """The same for SEVX, with the event as JSON. It is answered in any case."""
        id = self._put(id, protocol.send(event, once=once), done, not once)
        if done is None:
            self._sent_events[id] = self.out.unconfirmed
        return id

    def _put(self, id: str | None, request: str, done: Done | None, may_repeat: bool) -> str:
        if self.out.shut:
            raise ConnectionLost("this client is closed")
        if id is None:
            id = self.new_id()
        elif not is_name(protocol.encode(id)):
            raise ValueError(f"{id!r} is no id for a message: no spaces, and not -, --… or {{…")
        elif id in self._pending:
            raise ValueError(f"a message {id!r} waits for its confirm already")
        line = protocol.line(id, request)
        if done is None:
            self.out.put_unconfirmed(line)
        else:
            self.out.put(line)
            self._pending[id] = Request(line, True, done, self.out.unconfirmed, may_repeat)
        return id

    def ask(self, request: str, done: Done, *, again: bool = True) -> str:
        """Action and data with one answer. `again`: may be sent once more if the connection goes before the answer."""
        if "\n" in request:
            raise ValueError("a request is one line")
        protocol.encode(request)
        if not again and not self.connected:
            done(ConnectionLost(f"there is no connection for {_shown(request)!r}"))
            return ""
        id = self.new_id()
        line = protocol.line(id, request)
        self.out.put(line)
        self._pending[id] = Request(line, again, done, self.out.unconfirmed)
        return id

    def forget(self, *ids: str) -> None:
        """Nobody waits for these answers any more, so they are not asked for again. What was sent may still be done."""
        self._forgotten.update(id for id in ids if self._pending.pop(id, None))
        if len(self._forgotten) > MOST_FORGOTTEN:
            self._purge()

    def _purge(self) -> None:
        """Let what nobody waits for not wait to be sent."""
        with self.out:
            begun, waiting = self.out.begun if self.connected else 0, self.out.waiting
            kept = [line for line in waiting[bool(begun) :] if protocol.id_of(line) not in self._forgotten]
            self.out.replace([*waiting[: bool(begun)], *kept], begun)  # what was begun is to be ended
        self._forgotten.clear()

    def want(self, wanted: Wanted) -> None:
        protocol.encode(wanted.request())  # what is no text is an error of the caller, now and not at the next connect
        self._wanted[wanted] = None
        if self.connected:
            self._state(wanted)

    def unwant(self, wanted: Wanted) -> str:
        """Leave. What is on its way is still delivered, until the broker says that it has left. Answers the id of the
        request; empty: there is nothing to ask for."""
        if wanted not in self._wanted:
            return ""
        del self._wanted[wanted]
        wanted.leaving = True
        if not wanted.id:
            wanted.ended(None)
            return ""
        id, request = wanted.id.encode(), wanted.leave()
        wanted.id = ""
        return self.ask(request, lambda _: self._left(wanted, id), again=False)

    def _left(self, wanted: Wanted, id: bytes) -> None:
        self._links.pop(id, None)
        self._deliver(wanted, 0)
        wanted.ended(None)

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
                self._say(wanted.go_on(), wanted.id)

    def settle(self, wanted: WantedMessages, message: Message | None, action: str, done: Done | None = None) -> str:
        """Ack or reject a message, or with None all of this consumer's. Answers the id of the request; empty: the
        connection that it came over is gone, and the broker gives it again."""
        if not wanted.id or (message is not None and message.consumer_id != wanted.id):
            return ""
        request = wanted.settle(action, message.id if message else None, done is not None)
        return self._say(request) if done is None else self.ask(request, done, again=False)

    # What the transport tells

    def connect_failed(self) -> float:
        """Seconds to wait before the next attempt."""
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(self._attempts, 10))
        self._attempts += 1
        return delay * self._rng.uniform(0.5, 1.0)

    def made(self) -> None:
        """A connection stands: say again all that is wanted and not answered."""
        self.connected = True
        self._purge()
        with self.out:
            unsent = self.out.waiting
            self.out.replace(())
            for wanted in list(self._wanted):
                self._state(wanted)
            waits_in_out = {protocol.id_of(line) for line in unsent}
            again = [request for id, request in self._pending.items() if id not in waits_in_out]
            self.out.replace([*self.out.waiting, *(request.line for request in again), *unsent])
        if repeated := sum(request.may_repeat for request in again):
            self.note("publishes without an answer that are sent again, and may arrive twice: %d", repeated)
        self._ping()

    def outgoing(self) -> bytes:
        """What to send now; the transport has it from here on."""
        return self.out.take() if self.out.size and self.connected else b""

    def received(self, data: bytes) -> None:
        self._heard = True
        if self._rest:
            data = self._rest + data
        try:
            end = self._reader.read(data, self._touched)
            self._rest = data[end:]
        finally:
            touched, self._touched = self._touched, []
            for wanted in touched:
                self._deliver(wanted, len(data) // len(touched))

    def tick(self) -> bool:
        """Each keep_alive seconds; False: nothing was heard for one of them after a ping, the connection is dead."""
        if not self._heard:
            return False
        for wanted in list(self._wanted):
            if wanted.refused:
                self._state(wanted)
        if self._refused > 1:
            self.note("the broker refused more requests or messages for which nobody waits: %d", self._refused - 1)
        self._refused = 0
        self._ping()
        return True

    def lost(self) -> None:
        """The connection is gone: keep what can be said again, end the rest."""
        self.connected = False
        self._purge()
        self._rest = b""
        self._links.clear()
        for wanted in list(self._wanted):
            wanted.lost()
        failed = [id for id, request in self._pending.items() if not request.again]
        unanswered = [self._pending.pop(id) for id in failed]
        with self.out:
            kept = [
                line for line in self.out.waiting if protocol.is_publish(line) or protocol.id_of(line) in self._pending
            ]
            self.out.replace(kept)
            gone = self.out.unconfirmed - sum(1 for line in kept if protocol.id_of(line) not in self._pending)
        self._sent_events = {id: after for id, after in self._sent_events.items() if after > gone}
        if at_risk := gone - self._arrived:
            self.note("connection lost; publishes without confirm that may be lost with it: %d", at_risk)
        self._arrived = gone
        for request in unanswered:
            request.done(ConnectionLost(f"the connection went before {_shown(request.line)!r} was answered"))

    def end(self, error: MqksError, *, fault: bool = False) -> None:
        """The client closes: nobody shall wait any more. With a fault, those who take messages are told, too."""
        self.out.shut = True
        if unsent := sum(1 for line in self.out.waiting if protocol.is_publish(line)):
            self.note("publishes that were never sent, since the broker was away: %d", unsent)
        self.out.replace(())
        pending, self._pending = list(self._pending.values()), {}
        for request in pending:
            request.done(error)
        for wanted in list(self._wanted):
            self._drop(wanted, error if fault else None)

    # Inside

    def _say(self, request: str, id: str = "") -> str:
        """Nobody waits for an answer. Answers the request's id, by default a new one."""
        id = id or self.new_id()
        self.out.put_request(id, request)
        return id

    def _state(self, wanted: Wanted) -> None:
        """Ask for it; under the same id where it has one, which changes its options."""
        if wanted.leaving:
            return
        if not wanted.id:
            wanted.id = self.new_id()
            self._links[wanted.id.encode()] = wanted
        wanted.refused = False
        self._say(wanted.request(), wanted.id)

    def _drop(self, wanted: Wanted, error: MqksError | None) -> None:
        self._wanted.pop(wanted, None)
        self._links.pop(wanted.id.encode(), None)
        wanted.id = ""
        wanted.leaving = True
        wanted.ended(error)

    def _heed(self, wanted: Wanted, item: object) -> None:
        """What came for it, or None where it was news about itself."""
        if item is not None:
            if not wanted.batch:
                self._touched.append(wanted)
            wanted.batch.append(item)
        elif wanted.leaving:
            return
        elif wanted.restate:
            wanted.restate = False
            if wanted.queue:
                self.note("queue %s has no events any more: somebody has deleted or emptied it", wanted.queue)
            self._state(wanted)
        elif wanted.finished:
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
            self._say(protocol.pause(wanted.id))

    def _line(self, line: str) -> None:
        """A line that is no message for an MQKS consumer: an answer to a request, or of something wanted."""
        id, ok, data = parse_reply(line)
        request = self._pending.pop(id, None)
        after = request.after if request else self._sent_events.pop(id, 0)
        if after > self._arrived:
            self._arrived = after
        if request:
            request.done(data if ok else Refused(_shown(request.line, whole=id), data))
        elif wanted := self._links.get(protocol.encode(id)):
            if not ok:
                if not wanted.leaving:
                    self._refuse(wanted, data)
            elif not data:
                wanted.accepted = True
                wanted.ready()
            else:
                self._heed(wanted, wanted.read(data))
        elif not ok:
            self._refused += 1
            if self._refused == 1:  # of many only the number is told, with the next tick
                self.note("the broker refused the request or message %s: error %s; its log says why", id, data)

    def _refuse(self, wanted: Wanted, error_id: str) -> None:
        error = Refused(wanted.request(), error_id)
        if not wanted.accepted:
            self._drop(wanted, error)
            return
        wanted.refused = True
        self.note("%s; asking again", error)

    def _ping(self) -> None:
        self._heard = False
        self.ask(self._ping_request, self._pinged, again=False)

    def _pinged(self, answer: str | MqksError) -> None:
        """It has taken all that was said before: a connection that is worth to be made at once, if it goes."""
        if not isinstance(answer, MqksError):
            self._attempts = 0


def _shown(line: str, whole: str = "") -> str:
    """A request without what is long or changes; but this, with which it begins, is whole."""
    return line.rstrip("\n")[: max(100, len(whole))]
