"""What is ready in queues, for whoever calls it from Python: see ready.pyx."""

from mqks.core.parts import Queue

class Ready:
    def suspend(self, q: Queue) -> None: ...
    def go_on(self, q: Queue) -> None: ...
