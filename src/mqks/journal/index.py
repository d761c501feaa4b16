"""Parts of long queues on disk: chunks of positions, so that a queue of a billion messages costs little memory.

Parts of what `--once` remembers are here too, so that a checkpoint need not have it all.

Only append; a file whose chunks have all been taken back is removed, but not before a checkpoint has been made that
does not know it. What is here can be lost only together with the checkpoint that names it.
"""

import struct

from mqks.core.crc import crc32
from mqks.journal.disk import FULL, Disk
from mqks.journal.errors import JournalError

FOLDER = "index"
FILE_SIZE = 64 << 20
CHUNK = struct.Struct("<II")  # crc of the items, their count
OFFSET_BITS = 40  # of a place; the rest is the number of the file, which is never 0


class Index:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._sizes = {int(name.partition(".")[0]): size for name, size in disk.files(FOLDER).items()}
        self._folder = disk.open_folder(FOLDER)
        self._files: dict[int, int] = {}
        self._live = dict.fromkeys(self._sizes, 0)  # chunks that are in use
        self._last = max(self._sizes, default=0)
        self._current: int | None = None
        self._unsynced: dict[int, None] = {}

    def spill(self, items: bytes) -> int:
        """Answers the place, or 0 if the disk is full."""
        try:
            if self._current is None or self._sizes[self._current] >= FILE_SIZE:
                self._begin()
            number = self._last
            offset = self._sizes[number]
            self._disk.write(self._files[number], CHUNK.pack(crc32(items), len(items) // 8) + items, offset)
        except OSError as error:
            if error.errno in FULL:
                return 0
            raise
        self._sizes[number] = offset + CHUNK.size + len(items)
        self._live[number] += 1
        self._unsynced[number] = None
        return number << OFFSET_BITS | offset

    def bring_back(self, place: int, count: int) -> bytes:
        """The items of a chunk, which is not needed here any more."""
        items = self.read(place, count)
        self.release(place)
        return items

    def read(self, place: int, count: int) -> bytes:
        """The items of a chunk."""
        number, offset = place >> OFFSET_BITS, place & ((1 << OFFSET_BITS) - 1)
        data = self._disk.read(self._file(number), CHUNK.size + 8 * count, offset) if number in self._sizes else b""
        items = data[CHUNK.size :]
        if len(items) != 8 * count or CHUNK.unpack_from(data) != (crc32(items), count):
            raise JournalError(
                f"{FOLDER}/{_name(number)} is damaged at byte {offset}: a part of a queue, or of the ids of --once, "
                "cannot be read; remove the folders index and progress to have the queues made anew from the journal: "
                "messages then come again, and queues older than the journal are gone"
            )
        return items

    def release(self, place: int) -> None:
        """The chunk is not needed any more."""
        number = place >> OFFSET_BITS
        if number in self._live:
            self._live[number] -= 1

    def adopt(self, place: int) -> None:
        """A checkpoint names this chunk."""
        number = place >> OFFSET_BITS
        if number in self._live:
            self._live[number] += 1

    def to_sync(self) -> tuple[int, ...]:
        """The handles to sync before a checkpoint may name what is in them."""
        files = tuple(self._files[number] for number in self._unsynced)
        self._unsynced.clear()
        return (*files, self._folder) if files else ()

    def unused(self) -> list[int]:
        """The files that a checkpoint made now does not name."""
        return [number for number, live in self._live.items() if live == 0 and number != self._current]

    def remove(self, numbers: list[int]) -> None:
        for number in numbers:
            if number in self._files:
                self._disk.close(self._files.pop(number))
            self._disk.remove(f"{FOLDER}/{_name(number)}")
            del self._sizes[number], self._live[number]
            self._unsynced.pop(number, None)

    def _begin(self) -> None:
        number = self._last + 1
        self._files[number] = self._disk.open(f"{FOLDER}/{_name(number)}", create=True)
        self._sizes[number] = self._live[number] = 0
        self._last = self._current = number

    def _file(self, number: int) -> int:
        if number not in self._files:
            self._files[number] = self._disk.open(f"{FOLDER}/{_name(number)}")
        return self._files[number]


def _name(number: int) -> str:
    return f"{number:010d}.chunks"
