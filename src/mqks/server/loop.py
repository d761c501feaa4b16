"""The event loop: asyncio's own, on a selector that passes messages while it waits.

asyncio asks its selector to wait for events. Ours takes the broker's turns meanwhile and comes back when there is
something for asyncio to do, so a message costs no step through the loop, and all else (timers, signals, accepting) is
plain asyncio.
"""

import select
import selectors
from collections.abc import Callable, Mapping
from typing import Any

from mqks.core.sockets import Poller

_READ = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR
_WRITE = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR


class TurnSelector(selectors.BaseSelector):
    def __init__(self, poller: Poller, after_turns: Callable[[], None]) -> None:
        self._poller = poller
        self._after_turns = after_turns
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, _fd(fileobj), events, data)
        if key.fd in self._keys:
            raise KeyError(f"{fileobj!r} is already registered")
        self._poller.watch(key.fd, _mask(events), False)
        self._keys[key.fd] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = self._keys.pop(_fd(fileobj))
        self._poller.unwatch(key.fd)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, _fd(fileobj), events, data)
        if self._keys[key.fd].events != events:
            self._poller.watch(key.fd, _mask(events), True)
        self._keys[key.fd] = key
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._poller.wait(-1.0 if timeout is None else max(timeout, 0.0))
        self._after_turns()
        ready = []
        for fd, mask in events:
            key = self._keys.get(fd)
            if key is not None:
                seen = (selectors.EVENT_READ if mask & _READ else 0) | (selectors.EVENT_WRITE if mask & _WRITE else 0)
                ready.append((key, seen & key.events))
        return ready

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[_fd(fileobj)]


def _fd(fileobj: Any) -> int:
    return fileobj if isinstance(fileobj, int) else int(fileobj.fileno())


def _mask(events: int) -> int:
    return (select.EPOLLIN if events & selectors.EVENT_READ else 0) | (
        select.EPOLLOUT if events & selectors.EVENT_WRITE else 0
    )
