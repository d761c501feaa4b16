"""The journal as it is written, for whoever calls it from Python: see keeping.pyx."""

from mqks.core.callbacks import Journal

class Persistence:
    heeded: bool
    synced: int
    @property
    def stalled(self) -> bool: ...
    @property
    def unwritten(self) -> bool: ...
    def open_journal(
        self,
        journal: Journal,
        position: int,
        previous: int,
        first_line: bytes,
        *,
        segment_size: int,
        tail_memory: int,
        spill_after: int,
    ) -> None: ...
    def mark(self) -> None: ...
    def write_out(self) -> None: ...

def first_bad(data: bytes, position: int) -> int: ...
