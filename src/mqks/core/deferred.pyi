"""Input that waits, for whoever calls it from Python: see deferred.pyx."""

from mqks.core.parts import Connection

class DeferredInput:
    def resumable(self) -> list[Connection]: ...
