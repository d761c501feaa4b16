"""Messages as they come, for whoever watches: read by a history, and thinned out so that it stays readable and cheap.

A second has room for so many messages and so many bytes of the log. Messages beyond that are counted, and where even
counting would cost the broker too much, the tail goes on with the newest ones and says about how many it left out.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from mqks.broker import Broker
from mqks.broker.auth.access import Rights
from mqks.client.errors import Refused
from mqks.logs import Entry
from mqks.web.inside import Ended, Inside, Line
from mqks.web.live import AGAIN, event
from mqks.web.messages import KEPT, Parts, parts, show

log = logging.getLogger(__name__)

MOST = 200  # messages shown in a second
MOST_BYTES = 256 << 10  # of them, that wait to be sent
PIECE = 64 << 10  # bytes of events that are sent at a time
COUNTED = 1000  # messages read in a second
BUDGET = 2 << 20  # bytes of them
SILENCE = 15.0  # seconds after which a stream without events says that it lives
ALIVE = b": \n\n"


class Tail:
    """One watcher's. A task reads; what is to be shown waits here, at most MOST messages or MOST_BYTES, until it can be
    sent."""

    def __init__(self, broker: Broker, inside: Inside, masks: list[bytes], rights: Rights) -> None:
        self._broker = broker
        self._inside = inside
        self._masks = masks
        self._rights = rights  # the history has only what they let it
        self._where = broker.histories.visible  # all that comes after this moment
        self._second = 0
        self._room = MOST
        self._count = 0  # messages read in this second
        self._read = 0  # bytes of them
        self._waiting: deque[tuple[float, Line]] = deque()
        self._bytes = 0  # that these have
        self._skipped = 0
        self._about = False  # not all of the skipped ones were counted
        self._refused: str | None = None  # the error_id with which the broker ended it
        self._news = asyncio.Event()

    async def events(self) -> AsyncGenerator[bytes, None]:
        reading = asyncio.create_task(self._follow())
        reading.add_done_callback(lambda _: self._news.set())
        told = 0
        try:
            yield AGAIN
            while not reading.done() or self._waiting:
                try:
                    async with asyncio.timeout(1.0 if self._skipped else SILENCE):
                        if not self._waiting:
                            await self._news.wait()
                except TimeoutError:
                    if not self._skipped:
                        yield ALIVE
                self._news.clear()
                out = self._take()
                if self._skipped and told != self._now():
                    told = self._now()
                    out += event("skipped", {"count": self._skipped, "about": self._about})
                    self._skipped, self._about = 0, False
                if out:
                    yield out
            if self._refused is not None:
                yield event("refused", {"error": self._refused})
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _follow(self) -> None:
        try:
            while True:
                await self._go_on()
        except Ended:  # the broker stops
            pass
        except Refused as refused:  # such as when the log has moved on further than this got
            self._refused = refused.error_id
        except OSError as error:
            log.warning(Entry("a tail ends: there is no connection for it: {reason}", reason=error))
        except Exception:
            log.exception("a tail ends by a fault of its own")

    async def _go_on(self) -> None:
        first, last, count = 0, self._where - 1, 0
        asked = self._inside.history(
            self._where, self._masks, most=KEPT, follow=True, limit=COUNTED, rights=self._rights
        )
        async with aclosing(asked) as pieces:
            async for lines in pieces:
                first = first if count else lines[0].position
                last = lines[-1].position
                count += len(lines)
                apiece = (last - first + lines[-1].size) / count
                self._put(lines)
                if self._read > BUDGET:
                    break
        self._where = last + 1
        if self._read > BUDGET or self._count >= COUNTED:
            while self._second == self._now():
                await asyncio.sleep(0.1)
            self._jump(last, apiece)

    def _jump(self, last: int, apiece: float) -> None:
        """To the newest, and tell about how many there were between: messages had so many bytes apiece."""
        self._where = max(self._broker.histories.visible, last + 1)
        left = round((self._where - last) / max(apiece, 1)) - 1
        if left > 0:
            self._skipped += left
            self._about = True
            self._news.set()

    def _put(self, lines: list[Line]) -> None:
        if self._second != self._now():
            self._second, self._room, self._count, self._read = self._now(), MOST, 0, 0
        self._count += len(lines)
        self._read += sum(len(line.event) + line.size for line in lines)
        shown = list(self._fitting(lines[: max(min(self._room, MOST - len(self._waiting)), 0)]))
        self._room -= len(shown)
        now = time.time()
        self._waiting.extend((now, line) for line in shown)
        if shown or not self._skipped:
            self._news.set()
        self._skipped += len(lines) - len(shown)

    def _fitting(self, lines: list[Line]) -> Iterator[Line]:
        for line in lines:
            if self._bytes >= MOST_BYTES:
                return
            self._bytes += _kept(line)
            yield line

    def _take(self) -> bytes:
        """Some of what waits, as events. The log in memory knows by which action each came."""
        out = b""
        while self._waiting and len(out) < PIECE:
            when, line = self._waiting.popleft()
            self._bytes -= _kept(line)
            known = self._broker.persistence.lines([line.position], KEPT)
            found = parts(*known.get(line.position, (b"", 0)))
            message = Parts(line.id, found.action if found else b"publish", line.event, line.data, line.size)
            out += event("message", show(line.position, when, message))
        return out

    @staticmethod
    def _now() -> int:
        return int(asyncio.get_running_loop().time())


def _kept(line: Line) -> int:
    """Bytes of it that are kept."""
    return len(line.id) + len(line.event) + len(line.data)
