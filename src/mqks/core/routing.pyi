"""Messages to queues, for whoever calls it from Python: see routing.pyx."""

from collections.abc import Sequence

from mqks.core.parts import Connection, Queue

class Router:
    @property
    def published(self) -> int: ...
    def publish(
        self, c: Connection, id: bytes, event: bytes, data: bytes, scope: bytes | None = None
    ) -> Queue | None: ...
    def send(
        self, c: Connection, id: bytes, json: bytes, queues: Sequence[Queue], scope: bytes | None = None
    ) -> Queue | None: ...
    def record(self, line: bytes) -> int: ...
