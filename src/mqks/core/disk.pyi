"""The types of the disk as the core writes to it: see disk.pyx."""

from typing import Protocol

from typing_extensions import Buffer

class Writer(Protocol):
    def write(self, file: int, data: Buffer, offset: int) -> None: ...

class Disk:
    def write(self, file: int, data: Buffer, offset: int) -> None: ...

class FileDisk(Disk):
    @property
    def names(self) -> dict[int, str]: ...

class PythonDisk(Disk):
    def __init__(self, disk: Writer) -> None: ...

def disk_of(disk: Writer) -> Disk: ...
