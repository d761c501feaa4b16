"""One face for both clients, so that each test of what users see runs with each of them.

The asyncio client lives on a loop in a thread; its coroutines are waited for, its consumers iterated, from outside.
"""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mqks
from tests.running import PATIENCE


def until(holds: Callable[[], bool]) -> None:
    """For what another thread does in its own time."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never held"
        time.sleep(0.005)


class Awaited:
    """An object of the asyncio client: what it answers is waited for."""

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        return (lambda *words, **options: self._call(value, words, options)) if callable(value) else value

    def _call(self, function: Any, words: Any, options: Any) -> Any:
        async def call() -> Any:
            result = function(*words, **options)
            return await result if inspect.isawaitable(result) else result

        return self._wrapped(self._run(call()))

    def _run(self, coroutine: Any, timeout: float = PATIENCE) -> Any:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, timeout), self._loop).result()

    def _wrapped(self, value: Any) -> Any:
        ours = isinstance(value, mqks.AsyncMessage | mqks.AsyncConsumer) or inspect.isasyncgen(value)
        return Awaited(value, self._loop) if ours else value

    def __repr__(self) -> str:
        return repr(self._target)

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield self._wrapped(self._run(anext(self._target)))
            except StopAsyncIteration:
                return

    def __next__(self) -> Any:
        return next(iter(self))

    def get(self, timeout: float = PATIENCE) -> Any:
        return self._wrapped(self._run(self._target.get(timeout), timeout + PATIENCE))


@contextmanager
def open_client(kind: str, url: str, **options: Any) -> Iterator[Any]:
    """A `blocking` or an `asyncio` client."""
    if kind == "blocking":
        with mqks.connect(url, **options) as mq:
            yield mq
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        client = Awaited(mqks.AsyncClient(url, **options), loop)
        client.start()
        try:
            yield client
        finally:
            client.close()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
