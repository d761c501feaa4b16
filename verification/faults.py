"""Faults for a running broker: the shared file that preload.c looks at before each call."""

import errno
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

CLOCK = struct.Struct("<q")
FAULT = struct.Struct("<7i36s")
FAULTS = 8
SIZE = CLOCK.size + FAULTS * FAULT.size

WRITE, SYNC, RENAME, OPEN, UNLINK, TRUNCATE, RESERVE = (1 << bit for bit in range(7))
FAIL, SHORT, TORN, SLOW = range(4)


@dataclass(frozen=True)
class Fault:
    name: str
    calls: int
    how: int = FAIL
    error: int = errno.EIO
    count: int = 1
    milliseconds: int = 0


KINDS = (
    Fault("sync fails", SYNC),
    Fault("write fails", WRITE),
    Fault("torn write", WRITE, TORN),
    Fault("short writes", WRITE, SHORT, count=20),
    Fault("rename fails", RENAME),
    Fault("open fails", OPEN),
    Fault("unlink fails", UNLINK),
    Fault("truncate fails", TRUNCATE),
    Fault("disk full", WRITE | RESERVE, error=errno.ENOSPC, count=3),
    Fault("disk full for long", WRITE | RESERVE | OPEN, error=errno.ENOSPC, count=100),
    Fault("disk full, torn write", WRITE, TORN, error=errno.ENOSPC, count=2),
    Fault("quota", WRITE | RESERVE, error=errno.EDQUOT, count=5),
    Fault("read-only", WRITE | OPEN | RENAME | UNLINK, error=errno.EROFS, count=1000),
    Fault("slow syncs", SYNC, SLOW, count=10, milliseconds=60),
)
PATHS = ("", "", "journal/", "progress/", "index/", ".checkpoint")


class Control:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)

    def set_clock(self, seconds: int) -> None:
        """By how much the broker's wall clock is wrong."""
        CLOCK.pack_into(self._map, 0, seconds)

    def arm(self, slot: int, fault: Fault, path: str, skip: int) -> None:
        """Let calls on such paths fail, after so many that pass."""
        at = CLOCK.size + slot * FAULT.size
        FAULT.pack_into(
            self._map, at, 0, skip, fault.calls, fault.how, fault.error, fault.milliseconds, 0, path.encode()
        )
        struct.pack_into("<i", self._map, at, fault.count)

    def clear(self) -> None:
        """No faults any more."""
        self._map[:] = bytes(SIZE)
