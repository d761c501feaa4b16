"""Parts of long queues on disk: chunks of positions, so that a queue of a billion messages costs little memory.

Parts of what `--once` remembers are here too, so that a checkpoint need not have it all.

Only append; a file whose chunks have all been taken back is removed, but not before a checkpoint has been made that
does not know it. What is here can be lost only together with the checkpoint that names it. So that files become free
soon they are small beside all that is here, and what lives long is not in one file with what lives shortly.
"""

import re
import struct

from mqks.core.crc import crc32
from mqks.journal.disk import FULL, Disk
from mqks.journal.errors import JournalError

FOLDER = "index"
FILE_SIZE = 64 << 20  # at most,
LEAST_FILE_SIZE = 1 << 20  # at least,
SHARE = 16  # and else this part of the whole index
QUEUES, ONCE = "queues", "once"  # whose chunks are in a file
CHUNK = struct.Struct("<II")  # crc of the items, their count
_file_name = re.compile(r"[0-9]{10}\.chunks")
OFFSET_BITS = 40  # of a place; the rest is the number of the file, which is never 0


class Index:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._sizes = {int(name[:10]): size for name, size in disk.files(FOLDER).items() if _file_name.fullmatch(name)}
        self._total = sum(self._sizes.values())
        self._folder = disk.open_folder(FOLDER)
        self._files: dict[int, int] = {}
        self._live = dict.fromkeys(self._sizes, 0)  # chunks that are in use
        self._last = max(self._sizes, default=0)
        self._current: dict[str, int] = {}  # the file that is being written, by what is in it
        self._unsynced: dict[int, None] = {}

    def spill(self, items: bytes, kind: str = QUEUES) -> int:
        """Answers the place, or 0 if the disk is full."""
        try:
            if self._sizes.get(self._current.get(kind, 0), FILE_SIZE) >= self._file_size():
                self._begin(kind)
            number = self._current[kind]
            offset = self._sizes[number]
            self._disk.write(self._files[number], CHUNK.pack(crc32(items), len(items) // 8) + items, offset)
        except OSError as error:
            if error.errno in FULL:
                return 0
            raise
        self._sizes[number] = offset + CHUNK.size + len(items)
        self._total += CHUNK.size + len(items)
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
        number, offset = _parts(place)
        data = self._disk.read(self._file(number), CHUNK.size + 8 * count, offset) if number in self._sizes else b""
        items = data[CHUNK.size :]
        if len(items) != 8 * count or CHUNK.unpack_from(data) != (crc32(items), count):
            raise _damaged(number, offset)
        return items

    def release(self, place: int) -> None:
        """The chunk is not needed any more."""
        number = place >> OFFSET_BITS
        if number in self._live:
            self._live[number] -= 1

    def adopt(self, place: int, count: int) -> None:
        """A checkpoint names this chunk. What is in it is read when it is needed; that it can be there is seen now."""
        number, offset = _parts(place)
        if offset + CHUNK.size + 8 * count > self._sizes.get(number, 0):
            raise _damaged(number, offset)
        self._live[number] += 1

    def to_sync(self) -> tuple[int, ...]:
        """The handles to sync before a checkpoint may name what is in them."""
        files = tuple(self._files[number] for number in self._unsynced)
        self._unsynced.clear()
        return (*files, self._folder) if files else ()

    def unused(self) -> list[int]:
        """The files that the checkpoint just made does not name; from now on none of them is written."""
        found = [number for number, live in self._live.items() if live == 0]
        self._current = {kind: number for kind, number in self._current.items() if number not in found}
        return found

    def remove(self, numbers: list[int]) -> None:
        for number in numbers:
            if number in self._files:
                self._disk.close(self._files.pop(number))
            self._disk.remove(f"{FOLDER}/{_name(number)}")
            self._total -= self._sizes.pop(number)
            del self._live[number]
            self._unsynced.pop(number, None)

    def _file_size(self) -> int:
        return min(max(self._total // SHARE, LEAST_FILE_SIZE), FILE_SIZE)

    def _begin(self, kind: str) -> None:
        number = self._last + 1
        self._files[number] = self._disk.open(f"{FOLDER}/{_name(number)}", create=True)
        self._sizes[number] = self._live[number] = 0
        self._last = self._current[kind] = number

    def _file(self, number: int) -> int:
        if number not in self._files:
            self._files[number] = self._disk.open(f"{FOLDER}/{_name(number)}")
        return self._files[number]


def _parts(place: int) -> tuple[int, int]:
    """The number of the file, and the offset in it."""
    return place >> OFFSET_BITS, place & ((1 << OFFSET_BITS) - 1)


def _damaged(number: int, offset: int) -> JournalError:
    return JournalError(
        f"{FOLDER}/{_name(number)} is damaged at byte {offset}: a part of a queue, or of the ids of --once, cannot be "
        "read; remove the folders index and progress to have the queues made anew from the journal: messages then come "
        "again, and queues older than the journal are gone"
    )


def _name(number: int) -> str:
    return f"{number:010d}.chunks"
