"""Server-sent events: how a stream of them is answered, and the state each second.

A stream ends at once when the broker stops or its reader goes. A reader who may no more gets nothing more, and the end
of its stream within a second. Who reads slowly misses states: nothing is kept for it beyond what is on its way.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mqks.web.answers import dumps

SPARKS = 10  # states from one `spark` to the next
LOOK = 1.0  # seconds between two looks whether the reader still may
AGAIN = b"retry: 1000\n\n"  # milliseconds after which a browser that lost the stream comes back


def event(name: str, value: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), dumps(value))


class EventStream(Response):
    """Answers with what the source gives, until it ends, the reader goes or may no more, or the broker stops."""

    media_type = "text/event-stream"

    def __init__(
        self, source: AsyncGenerator[bytes, None], stopping: asyncio.Event, stands: Callable[[], bool]
    ) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._source = source
        self._stopping = stopping
        self._stands = stands

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            pumping = asyncio.create_task(self._pump(send))
            ends = (_gone(receive), self._stopping.wait(), self._forbidden())
            others: list[asyncio.Task[object]] = [asyncio.create_task(end) for end in ends]
            try:
                await asyncio.wait([pumping, *others], return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended = pumping.done() and not pumping.cancelled() and pumping.exception()
                for task in (pumping, *others):
                    task.cancel()
                await asyncio.gather(pumping, *others, return_exceptions=True)
            if ended:
                raise ended
        await send({"type": "http.response.body", "body": b""})

    async def _pump(self, send: Send) -> None:
        async with aclosing(self._source) as source:
            async for piece in source:
                if not self._stands():
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})

    async def _forbidden(self) -> None:
        while self._stands():
            await asyncio.sleep(LOOK)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# ── the state ──


class Figures(Protocol):
    def state(self) -> dict[str, Any]: ...
    def spark(self) -> dict[str, Any]: ...


class Live:
    """The state each second, made once for all who watch, and not at all while nobody does."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._watchers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._latest = b""
        self._news = asyncio.Event()

    async def events(self) -> AsyncGenerator[bytes, None]:
        self._watchers += 1
        try:
            if self._timer is None:
                self._tick()
            yield AGAIN + event("spark", self._figures.spark()) + self._latest
            while True:
                await self._news.wait()  # who comes late here waits for the next one
                yield self._latest
        finally:
            self._watchers -= 1

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(1.0, self._tick) if self._watchers else None
        if self._timer is None:
            return
        self._ticks += 1
        self._latest = event("state", self._figures.state())
        if self._ticks % SPARKS == 0:
            self._latest += event("spark", self._figures.spark())
        news, self._news = self._news, asyncio.Event()
        news.set()
