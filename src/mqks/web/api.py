"""What each path answers. It reads the broker and its figures; only publish, purge and delete change something.

Rights on names are asked here: what is published or purged, and which messages are shown. What goes to the broker goes
with the caller's rights, so the broker decides too.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from mqks.broker import Broker
from mqks.broker.auth.access import Rights
from mqks.broker.queues.queue import Queue
from mqks.broker.queues.queue_manager import PURGED_AT_ONCE
from mqks.client import protocol
from mqks.client.errors import Refused
from mqks.logs import Entry
from mqks.names import text
from mqks.web import publishing
from mqks.web.answers import Json
from mqks.web.gate import LONGEST_TOKEN, Caller, Gate, forbidden
from mqks.web.inside import Ended, Inside
from mqks.web.live import EventStream, Live
from mqks.web.memory import MEMORY_FULL
from mqks.web.messages import KEPT, Parts, parts, show
from mqks.web.metrics import Metrics
from mqks.web.sessions import LASTS, Session
from mqks.web.state import Figures
from mqks.web.tail import Tail
from mqks.web.words import named

log = logging.getLogger(__name__)

JOURNAL_FAILED = "the journal has failed"
DISK_FULL = "the disk takes no more"
STOPPED = "the broker stopped before it answered. It may have been done: look before you ask again"
TOO_LATE = "no answer in time: the disk is slow, or the memory full. It may still be done: look before you ask again"
RIGHTS = ("publish", "queues", "events", "manage", "history", "eval", "admin")
PEEKED_AT_ONCE = 20  # long lines, before others have their turn


class Api:
    """Each operation takes who asks and the parameters that the table in app.py names, and answers JSON, or a
    response."""

    def __init__(self, broker: Broker, figures: Figures, inside: Inside, stopping: asyncio.Event, gate: Gate) -> None:
        self._broker = broker
        self._figures = figures
        self._metrics = Metrics(figures)
        self._inside = inside
        self._stopping = stopping
        self._gate = gate
        self._live = Live(figures)
        self._reading = asyncio.Lock()

    # ── how it is ──

    async def healthz(self, _: Caller) -> Response:
        wrong = self._wrong()
        return Json({"status": wrong or "ok"}, 503 if wrong else 200)

    async def metrics(self, _: Caller, accept: str) -> Response:
        content, kind = self._metrics.text(accept)
        return Response(content, headers={"content-type": kind})

    async def state(self, _: Caller) -> Any:
        return self._figures.state()

    async def live(self, caller: Caller) -> Response:
        return self._stream(self._live.events(), caller, lambda now: now.admin)

    async def tail(self, caller: Caller, mask: list[bytes]) -> Response:
        source = Tail(self._broker, self._inside, mask, caller.rights).events()
        return self._stream(source, caller, lambda now: now.reads_no_less_than(caller.rights))

    def _stream(self, source: AsyncGenerator[bytes, None], caller: Caller, may: Callable[[Rights], bool]) -> Response:
        """It is admitted but once, and goes on while its caller's rights let it."""

        def stands() -> bool:
            now = self._gate.current(caller)
            return now is not None and may(now)

        return EventStream(source, self._stopping, stands)

    async def consumers(self, _: Caller, limit: int) -> Any:
        return {"total": self._figures.totals()["consumers"], "consumers": self._figures.consumers(limit)}

    async def connections(self, _: Caller, limit: int) -> Any:
        return {"total": self._broker.connections.count, "connections": self._figures.connections(limit)}

    async def events(self, _: Caller, limit: int) -> Any:
        return {"total": self._figures.event_count(), "events": self._figures.events(limit)}

    async def journal(self, _: Caller) -> Any:
        return self._figures.journal()

    async def pipeline(self, _: Caller) -> Any:
        return self._figures.pipeline()

    # ── who one is ──

    async def session(self, caller: Caller) -> Any:
        return self._told(caller.rights, caller.session)

    async def login(self, caller: Caller, body: Any) -> Response:
        """A session for a token. One that the browser had before ends."""
        token = body.get("token") if isinstance(body, dict) and len(body) == 1 else None
        if not isinstance(token, str) or not 0 < len(token) <= LONGEST_TOKEN:
            raise HTTPException(400, 'send an object such as {"token": "…"}')
        rights = await self._gate.rights_of(token, caller.address)
        if caller.session:
            self._gate.sessions.end(caller.session)
        if not self._gate.has_authority:
            return Json(self._told(rights, None))
        session = self._gate.sessions.begin(rights)
        log.info(Entry("token {name} logged in over HTTP from {address}", name=rights.name, address=caller.address))
        answer = Json(self._told(rights, session))
        answer.set_cookie(
            caller.cookie, session.secret, max_age=LASTS, secure=caller.encrypted, httponly=True, samesite="strict"
        )
        return answer

    async def logout(self, caller: Caller) -> Response:
        if caller.session:
            self._gate.sessions.end(caller.session)
        answer = Json({"ended": caller.session is not None})
        answer.delete_cookie(caller.cookie, secure=caller.encrypted, httponly=True, samesite="strict")
        return answer

    def _told(self, rights: Rights, session: Session | None) -> dict[str, Any]:
        return {
            "name": rights.name if self._gate.has_authority else None,
            "rights": {name: getattr(rights, name) for name in RIGHTS},
            "csrf": session.csrf if session else None,
        }

    # ── queues ──

    async def queues(self, _: Caller, limit: int, offset: int, sort: str, name: str) -> Any:
        total, rows = self._figures.queue_rows(sort, offset, limit, name)
        return {"total": total, "queues": rows}

    async def queue(self, caller: Caller, key: bytes) -> Any:
        queue = self._queue(key)
        return self._figures.queue(queue) | {"may_manage": caller.rights.may_manage(queue.name)}

    async def messages(self, caller: Caller, key: bytes, limit: int) -> Any:
        """The next messages of a queue, of these those that the caller may read. They stay where they are."""
        queue = self._queue(key)
        ready, retries = queue.ready_count, dict(self._broker.core.delivery.peek(queue, limit))
        found = await self._found(list(retries), KEPT)
        shown = [
            show(position, *found[position], retry=retry)
            for position, retry in retries.items()
            if position in found and _may_read(caller.rights, found[position][1])
        ]
        return {"ready": ready, "messages": shown}

    async def purge(self, caller: Caller, key: bytes) -> Any:
        """In pieces, with a turn for others between; of what comes meanwhile no more than there was at first."""
        queue = self._managed(key, caller.rights)
        there, purged = queue.ready_count, 0
        while count := self._broker.queues.purge(queue, min(there - purged, PURGED_AT_ONCE)):
            purged += count
            await asyncio.sleep(0)
            caller = self._gate.admit_again(caller, ("manage",))
            _permit_managing(queue.name, caller.rights)
        nobody = self._broker.new_dtid()  # no consumer has this id, on no connection
        request = protocol.settle("ack", nobody.decode(), None, confirm=True)  # answered when all is on disk
        await self._ask(protocol.unended_line(nobody, request), caller.rights)
        return {"purged": purged}

    async def delete(self, caller: Caller, key: bytes) -> Any:
        queue = self._managed(key, caller.rights)
        request = protocol.delete_queue(protocol.decode(queue.name))
        await self._ask(protocol.unended_line(self._broker.new_dtid(), request), caller.rights)
        return {"deleted": text(queue.name)}

    def _queue(self, name: bytes) -> Queue:
        queue = self._figures.find(name)
        if queue is None:
            raise HTTPException(404, "there is no such queue: /api/queues lists them, each with its key")
        return queue

    def _managed(self, name: bytes, rights: Rights) -> Queue:
        queue = self._figures.find(name)
        _permit_managing(queue.name if queue else name, rights)
        return self._queue(name)

    # ── messages ──

    async def message(self, caller: Caller, position: int) -> Any:
        found = await self._found([position], sys.maxsize)
        if position not in found:
            raise HTTPException(404, "no message begins at this position, or it is gone: retention removes old ones")
        when, message = found[position]
        if not _may_read(caller.rights, message):
            raise forbidden("history")  # of what: that is not told either
        return show(position, when, message, whole=True)

    async def publish(self, caller: Caller, body: Any) -> Any:
        try:
            message = publishing.publish(body, self._broker.new_dtid)
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        if not caller.rights.may_publish(message.event):
            raise forbidden("publish", named(message.event))
        if len(message.line) > self._broker.core.output.max_line:
            raise HTTPException(413, "longer than --max-line: send less, or start mqksd with a larger one")
        await self._ask(message.line, caller.rights)
        return {"id": text(message.id)}

    async def _found(self, positions: list[int], most: int) -> dict[int, tuple[float | None, Parts]]:
        """The messages that begin at these positions, so much of each, and when they came; from memory, and from the
        disk in a thread. One at a time asks for this: it takes memory that nobody counts."""
        async with self._reading:
            lines: dict[int, tuple[bytes, int]] = {}
            for at in range(0, len(positions), PEEKED_AT_ONCE):
                lines |= self._broker.persistence.lines(positions[at : at + PEEKED_AT_ONCE], most)
                await asyncio.sleep(0)
            return await asyncio.to_thread(self._complete, positions, most, lines)

    def _complete(
        self, positions: list[int], most: int, lines: dict[int, tuple[bytes, int]]
    ) -> dict[int, tuple[float | None, Parts]]:
        lines |= self._broker.persistence.read_lines(
            [position for position in positions if position not in lines], most
        )
        return {
            position: (self._broker.persistence.time_of(position), message)
            for position, line in lines.items()
            if (message := parts(*line))
        }

    def _wrong(self, more: int = 0) -> str | None:
        """Why no message (with so many bytes) is taken, if none is. Anybody may read it, so it names no files."""
        core = self._broker.core
        if self._broker.broken or core.log.refusing:
            return JOURNAL_FAILED if self._broker.broken else DISK_FULL
        return MEMORY_FULL if core.account.used + more >= core.account.max_memory else None

    async def _ask(self, line: bytes, rights: Rights) -> None:
        """A request of the protocol; its errors as those of HTTP."""
        try:
            await self._inside.request(line, rights)
        except Refused as refused:
            if wrong := self._wrong(len(line)):
                raise HTTPException(503, f"{wrong}; the broker's log has it as {refused.error_id}") from None
            raise HTTPException(400, f"the broker refused it: its log has the reason as {refused.error_id}") from None
        except TimeoutError:
            raise HTTPException(503, TOO_LATE) from None
        except OSError as error:
            raise HTTPException(503, f"the broker cannot connect to itself: {error.strerror}") from None
        except Ended:
            raise HTTPException(503, STOPPED) from None


def _permit_managing(name: bytes, rights: Rights) -> None:
    if not rights.may_manage(name):
        raise forbidden("manage", named(name))


def _may_read(rights: Rights, message: Parts) -> bool:
    """Of a message without data, though it has some, the name may be cut too: then only all may be read."""
    return rights.reads_all or (bool(message.data or not message.size) and rights.may_read(message.event))
