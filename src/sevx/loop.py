"""The event loop on which async handlers run: one, in a thread of its own, started when it is first needed.

It also keeps time for events that shall go back to their queue a little later.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future


class LoopThread:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end = asyncio.Event()
        self.thread: threading.Thread | None = None

    def outcome(self, awaitable: Awaitable[object]) -> BaseException | None:
        """Runs it to its end, from another thread; answers what it raised."""
        return asyncio.run_coroutine_threadsafe(_outcome(awaitable), self._started()).result()

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        loop = self._started()
        loop.call_soon_threadsafe(loop.call_later, seconds, call)

    def stop(self, seconds: float) -> None:
        """What still runs there is cancelled, and waited for no longer than this."""
        with self._lock:
            loop, thread = self._loop, self.thread
        if loop is not None and thread is not None and thread.is_alive():
            loop.call_soon_threadsafe(self._end.set)
            if thread is not threading.current_thread():
                thread.join(seconds)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                begun: Future[asyncio.AbstractEventLoop] = Future()
                self.thread = threading.Thread(target=self._run, args=(begun,), name="sevx async handlers", daemon=True)
                self.thread.start()
                self._loop = begun.result()
            return self._loop

    def _run(self, begun: "Future[asyncio.AbstractEventLoop]") -> None:
        async def until_end() -> None:
            begun.set_result(asyncio.get_running_loop())
            await self._end.wait()

        asyncio.run(until_end())


async def _outcome(awaitable: Awaitable[object]) -> BaseException | None:
    """As a value, since a SystemExit that is raised in a task would end the loop, and with it every handler."""
    try:
        await awaitable
    except BaseException as error:
        return error
    return None
