"""What became of messages: a log of what was taken from queues, settled and retried, and checkpoints of all queues.

`{n}.checkpoint` is the state of every queue at one position of the journal; `{n}.log` has what happened since, one
record for each write. A start needs the newest checkpoint, the logs from its number on, and the journal from its
position on. A new checkpoint begins a new log; when it is safely on disk, all older ones go. The words in records and
snapshots are the core's (core/progress.pyx, snapshots.pyx). Both formats are the broker's own and may change with its
version.

Each shows that the other is missing. A checkpoint is renamed to its name when the log of its number, with its head, is
on disk: a checkpoint without its log is damage. The head names the checkpoint before, which is removed only when a
newer one is on disk: a log that names a checkpoint, and no such or newer one there, is damage. A crash leaves neither.

Logs and journal are separate files, and a power loss may keep a record and take messages that were written before it.
So each record names the end of the journal when it was written. At a start a record that needs more of the journal than
there is, and all after it, did not happen. A confirmed ack is never among them: its `ok` waits for a sync of both
files. A record also says how far the journal was synced: if the journal ends before that, it is damaged.
"""

import json
import logging
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mqks.core.crc import crc32
from mqks.core.disk import disk_of
from mqks.journal.disk import Disk, Reserve, sync_folder
from mqks.journal.errors import JournalError
from mqks.journal.format import time_of
from mqks.logs import Entry

log = logging.getLogger(__name__)

FOLDER = "progress"
VERSION = 2
VERSIONS = (1, 2)  # of checkpoints that can be read
MAGIC = b"mqksprg2"
# Magic, crc of all that follows it, bytes of the words, how far this log was synced; of the journal its end, and how
# far it was synced
RECORD = struct.Struct("<8sIIQQQ")
SIZES = struct.Struct("<IQQQ")  # what the crc covers of it
RECORDS = {MAGIC: RECORD, b"mqksprog": struct.Struct("<8sIIQ")}  # those of version 1 do not speak of the journal
MAGICS = b"mqkspr"  # all begin so
CRC_AT = 12
CRC_SIZE = 4
HEAD = struct.Struct("<8sQ")  # of a log that begins with a checkpoint: magic, number of the checkpoint before or 0
HEAD_MAGIC = b"mqkshead"
HEAD_SIZE = HEAD.size + 4  # with its crc
AHEAD = 1 << 20
PIECE = 1 << 15  # bytes of a checkpoint that are made and written at a time
QUEUE_COST = 80  # bytes of memory for a queue in Snapshots, beside its snapshot
POSITION_BITS = 56  # of an item; the rest are its retries


class Kept(NamedTuple):
    """A queue in a checkpoint."""

    name: bytes
    birth: int
    definition: bytes
    snapshot: bytes


@dataclass
class Snapshots:
    """All queues of one moment. Taking them must be quick: nothing is made of them until they are written. Together
    they may be as large as the queues, so writing them copies a piece at a time."""

    names: list[bytes] = field(default_factory=list)
    births: list[int] = field(default_factory=list)
    definitions: list[bytes] = field(default_factory=list)
    data: bytes = b""  # of one queue after the other
    sizes: bytes = b""  # in it, as words

    def __iter__(self) -> Iterator[Kept]:
        at = 0
        sizes = memoryview(self.sizes).cast("Q")
        for name, birth, definition, size in zip(self.names, self.births, self.definitions, sizes, strict=True):
            yield Kept(name, birth, definition, self.data[at : at + size])
            at += size

    @property
    def memory(self) -> int:
        """Bytes that it takes. Names and definitions are shared with the queues."""
        return len(self.data) + len(self.sizes) + QUEUE_COST * len(self.names)

    def described(self) -> Iterator[bytes]:
        """All but the data, as elements of a JSON array: of some queues at a time, or of one with a long definition."""
        sizes = memoryview(self.sizes).cast("Q")
        begin, separator = 0, b""
        while begin < len(self.names):
            end, left = begin, PIECE
            while end < len(self.names) and left > 0:
                left -= QUEUE_COST + len(self.names[end]) + len(self.definitions[end])
                end += 1
            some = [
                [_text(self.names[at]), self.births[at], _text(self.definitions[at]), sizes[at]]
                for at in range(begin, end)
            ]
            yield separator + json.dumps(some).encode()[1:-1]
            begin, separator = end, b", "


@dataclass
class Checkpoint:
    number: int
    position: int = 0  # of the journal, up to where it is in here
    crc: int = 0  # of the last batch before it
    dtid: bytes = b""  # when it was made
    holds: dict[bytes, list[float]] = field(default_factory=dict)  # name → position, expiry
    queues: Snapshots = field(default_factory=Snapshots)
    extents: bytes = b""
    key: bytes = b""  # that the ids of --once are hashed with
    seen: bytes = b""  # these ids
    has_log: bool = True  # of its number, on disk before it; the first versions did not make sure of that

    @property
    def least_size(self) -> int:
        """Bytes that the file has at least; never 0, which no file system reserves."""
        return len(self.extents) + len(self.queues.data) + len(self.seen) + CRC_SIZE

    @property
    def memory(self) -> int:
        """Bytes that it takes until it is released."""
        return self.queues.memory + len(self.extents) + len(self.seen)

    def release(self) -> None:
        """All of it is written: free what was needed for that."""
        self.queues, self.extents, self.seen = Snapshots(), b"", b""

    def pieces(self) -> Iterator[bytes]:
        """The file. A piece is short, unless the definition of one queue is long."""
        crc = 0
        for part in self._content():
            for at in range(0, len(part), PIECE):
                piece = part[at : at + PIECE]
                crc = crc32(piece, crc)
                yield piece
        yield struct.pack("<I", crc)

    def _content(self) -> Iterator[bytes]:
        head = {
            "version": VERSION,
            "position": self.position,
            "crc": self.crc,
            "dtid": _text(self.dtid),
            "holds": {_text(name): hold for name, hold in self.holds.items()},
            "extents": len(self.extents),
            "key": self.key.hex(),
            "seen": len(self.seen),
            "log": True,
        }
        yield json.dumps(head).encode()[:-1] + b', "queues": ['
        yield from self.queues.described()
        yield b"]}\n"
        yield from (self.extents, self.queues.data, self.seen)

    def create(self, disk: Disk) -> int:
        """A file that is no checkpoint yet."""
        return disk.open(self._file("new"), create=True)

    def write(self, disk: Disk, file: int) -> Iterator[int]:
        """Write it into this file; answers the bytes of each piece, as soon as it is written."""
        at = 0
        for piece in self.pieces():
            disk.write(file, piece, at)
            at += len(piece)
            yield len(piece)

    def discard(self, disk: Disk, file: int) -> None:
        """It will never be one."""
        disk.close(file)
        disk.remove(self._file("new"))

    def publish(self, disk: Disk) -> None:
        """All that it relies on is on disk: from now on it is one."""
        disk.rename(self._file("new"), self._file("checkpoint"))

    def _file(self, kind: str) -> str:
        return f"{FOLDER}/{self.number:010d}.{kind}"

    @classmethod
    def unpack(cls, number: int, data: bytes) -> "Checkpoint | None":
        """None: it is not whole."""
        if len(data) < 4 or struct.unpack_from("<I", data, len(data) - 4)[0] != crc32(data[:-4]):
            return None
        line, _, rest = data[:-4].partition(b"\n")
        head: dict[str, Any] = json.loads(line)
        if head["version"] not in VERSIONS:
            raise JournalError(
                f"{FOLDER}/{number:010d}.checkpoint is of version {head['version']}, which this mqksd does not know: "
                "use the one that wrote it, or remove the folders progress and index: messages then come again, and "
                "queues older than the journal are gone"
            )
        made = cls(number, head["position"], head["crc"], _bytes(head["dtid"]))
        made.holds = {_bytes(name): hold for name, hold in head["holds"].items()}
        at = head["extents"]
        made.extents = rest[:at]
        told = head["queues"]
        sizes = [size for *_, size in told]
        made.queues = Snapshots(
            [_bytes(name) for name, *_ in told],
            [birth for _, birth, *_ in told],
            [_bytes(definition) for *_, definition, _ in told],
            rest[at : at + sum(sizes)],
            struct.pack(f"{len(sizes)}Q", *sizes),
        )
        at += sum(sizes)
        made.key = bytes.fromhex(head.get("key", ""))  # the first ones knew no --once
        made.seen = rest[at : at + head.get("seen", 0)]
        made.has_log = head.get("log", False)
        return made


def _text(name: bytes) -> str:
    return name.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


@dataclass
class Since:
    """What happened to one queue since the checkpoint."""

    taken: int = 0
    items: list[bytes] = field(default_factory=list)


class Log:
    """The log that is being written."""

    def __init__(self, disk: Disk, number: int, head: bytes = b"") -> None:
        self._disk = disk
        self._writer = disk_of(disk)
        self.number = number
        self.file = disk.open(_log(number), create=True)
        self.size = self._begin = len(head)
        if head:
            try:
                disk.write(self.file, head, 0)
            except OSError:
                disk.close(self.file)
                disk.remove(_log(number))
                raise
        self.synced = 0
        self._reserve = Reserve(disk, AHEAD)

    def write(self, words: bytes | bytearray, journal_end: int, journal_synced: int) -> None:
        sizes = len(words), self.synced, journal_end, journal_synced
        crc = crc32(words, crc32(SIZES.pack(*sizes)))
        self._writer.write(self.file, RECORD.pack(MAGIC, crc, *sizes) + words, self.size)
        self.size += RECORD.size + len(words)

    @property
    def has_words(self) -> bool:
        return self.size > self._begin

    def has_room(self) -> bool:
        """Is there disk for what may come next? Space is reserved a good part ahead."""
        return self._reserve.has_room(self.file, self.size)

    def finish(self) -> None:
        """Another log takes its place: give back what was reserved."""
        if self._reserve.end:
            self._disk.truncate(self.file, self.size)


class Logs:
    """The log that is being written, and those before it until a checkpoint on disk makes them needless."""

    def __init__(self, disk: Disk, number: int) -> None:
        self._disk = disk
        self.folder = disk.open_folder(FOLDER)
        self.needless: set[int] = set()  # files of logs, still open
        self._replaced: list[Log] = []
        self._to_sync: dict[int, Log] = {}
        self._folder_to_sync = False
        self.current = Log(disk, number)
        self._appeared()

    def begin(self, number: int) -> int:
        """The log of a checkpoint. Answers a handle of its own: the checkpoint counts when that and the folder are
        synced. If there is no room for the log, the one before goes on."""
        before = max(_numbers(self._disk.files(FOLDER), "checkpoint"), default=0)
        fresh = Log(self._disk, number, _head(before))
        self.current.finish()
        self._replaced.append(self.current)
        self.current = fresh
        self._appeared()
        return self._disk.open(_log(number))

    def _appeared(self) -> None:
        self._to_sync[self.current.number] = self.current
        self._folder_to_sync = True

    def write(self, words: bytes | bytearray, journal_end: int, journal_synced: int) -> None:
        self.current.write(words, journal_end, journal_synced)
        self._to_sync[self.current.number] = self.current

    @property
    def unsynced(self) -> bool:
        """Are there words that no sync has begun to cover?"""
        return any(one.size > one.synced for one in self._to_sync.values())

    def to_sync(self) -> tuple[tuple[int, ...], dict[Log, int]]:
        """The handles, and how far each log is synced then."""
        logs = {one: one.size for one in self._to_sync.values()}
        files = (*(one.file for one in logs), *((self.folder,) if self._folder_to_sync else ()))
        self._to_sync.clear()
        self._folder_to_sync = False
        return files, logs

    def forget_before(self, number: int) -> None:
        """A checkpoint of this number is on disk."""
        for one in [one for one in self._replaced if one.number < number]:
            self._replaced.remove(one)
            self._to_sync.pop(one.number, None)
            self.needless.add(one.file)

    def close_unused(self, in_use: set[int]) -> None:
        """All that are needless, but for these files."""
        for file in self.needless - in_use:
            self._disk.close(file)
        self.needless &= in_use


def places(snapshot: bytes) -> Iterator[tuple[int, int]]:
    """The parts of a queue's snapshot that are in the index: place and count."""
    words = memoryview(snapshot).cast("Q")
    _, unsettled, returned, parts = words[:4]
    at = 4 + 2 * (unsettled + returned)
    for _ in range(parts):
        place, count = words[at : at + 2]
        if place:
            yield place, count
        at += 2 if place else 2 + count


class Record(NamedTuple):
    start: int  # in the log
    end: int
    words: bytes
    synced: int  # how far the log was synced when this was written
    needs: int  # the journal up to this position
    journal_synced: int  # up to there it was on disk


def records(data: bytes, name: str, salvage: bool = False) -> Iterator[Record]:
    """The valid records. A bad one ends the log, unless a later one knows that it was safely on disk."""
    at = 0 if data.startswith(MAGICS) else HEAD_SIZE
    while at < len(data):
        found = _record_at(data, at)
        if found is None:
            if not salvage:
                _check_torn(data, at, name)
            said = "{file} ends at byte {bytes}: acks that were not confirmed may be missing"
            log.warning(Entry(said, file=f"{FOLDER}/{name}", bytes=at))
            return
        yield found
        at = found.end


def journal_synced(folder: Path) -> int:
    """Up to where the journal was on disk, as the checkpoints and logs in this data folder tell. Damage in them is
    passed over."""
    synced = 0
    for data in _contents(folder, "checkpoint"):
        with suppress(JournalError):  # of another version
            checkpoint = Checkpoint.unpack(0, data)
            synced = max(synced, checkpoint.position if checkpoint else 0)
    for data in _contents(folder, "log"):
        at = data.find(MAGICS)
        while at >= 0:
            found = _record_at(data, at)
            synced = max(synced, found.journal_synced if found else 0)
            at = data.find(MAGICS, found.end if found else at + 1)
    return synced


def _contents(folder: Path, kind: str) -> Iterator[bytes]:
    for path in sorted((folder / FOLDER).glob(f"*.{kind}")):
        with suppress(FileNotFoundError):  # a running broker has removed it meanwhile
            yield path.read_bytes()


def _record_at(data: bytes, at: int) -> Record | None:
    """The valid record that stands here."""
    form = RECORDS.get(data[at : at + 8])
    if form is None or at + form.size > len(data):
        return None
    _, crc, size, synced, *journal = form.unpack_from(data, at)
    end = at + form.size + size
    if end > len(data) or crc32(data[at + CRC_AT : end]) != crc:
        return None
    words = data[at + form.size : end]
    return Record(at, end, words, synced, *(journal or (_highest(words) + 1, 0)))


def _highest(words: bytes) -> int:
    """The highest position that a record of version 1 names: the journal it needs is at least so long."""
    view = memoryview(words).cast("Q")
    found = at = 0
    while at < len(view):
        birth, _, count = view[at : at + 3]
        positions = (word & ((1 << POSITION_BITS) - 1) for word in view[at + 3 : at + 3 + count])
        found = max(found, birth, max(positions, default=0))
        at += 3 + count
    return found


def _check_torn(data: bytes, bad: int, name: str) -> None:
    at = data.find(MAGICS, bad + 1)
    while at >= 0:
        found = _record_at(data, at)
        if found is not None and found.synced > bad:
            raise JournalError(
                f"{FOLDER}/{name} is damaged at byte {bad}: acks were lost; start with --salvage to go on without "
                "them: some messages then come again"
            )
        at = data.find(MAGICS, at + 1)


@dataclass
class Logged:
    """A log as a start finds it."""

    name: str
    data: bytes
    records: list[Record]


def read_logs(disk: Disk, numbers: list[int], salvage: bool) -> list[Logged]:
    found = []
    for name in (f"{number:010d}.log" for number in numbers):
        data = read(disk, name)
        found.append(Logged(name, data, list(records(data, name, salvage))))
    return found


def replay(disk: Disk, logs: list[Logged], journal_end: int) -> dict[int, Since]:
    """What happened, by the birth of the queue, as far as the journal has what it depends on; the rest is cut off, so
    that the next start does not take it for real when the journal is longer."""
    found: dict[int, Since] = {}
    for one in logs:
        name, data = one.name, one.data
        size = min((record.start for record in one.records if record.needs > journal_end), default=len(data))
        for record in one.records:
            if record.start < size:
                _add(found, record.words)
        if size < len(data):
            said = (
                "{file} is cut at byte {bytes}: what follows depends on messages that a crash took from the end of the "
                "journal; acks that were not confirmed may be missing"
            )
            log.warning(Entry(said, file=f"{FOLDER}/{name}", bytes=size))
        make_safe(disk, name, data[:size])
    return found


def _add(found: dict[int, Since], words: bytes) -> None:
    view = memoryview(words).cast("Q")
    at = 0
    while at < len(view):
        birth, taken, count = view[at : at + 3]
        one = found.setdefault(birth, Since())
        one.taken = max(one.taken, taken)
        one.items.append(words[8 * (at + 3) : 8 * (at + 3 + count)])
        at += 3 + count


@dataclass
class Found:
    """What a start finds in the folder."""

    checkpoint: Checkpoint
    logs: list[int]
    stale: list[str]
    last: int  # the highest number in use


def find(disk: Disk, salvage: bool = False) -> Found:
    files = disk.files(FOLDER)
    heads = {number: _read_head(disk, number) for number in _numbers(files, "log")}
    newest = max(_numbers(files, "checkpoint"), default=0)
    checkpoint = Checkpoint(0)
    if newest:
        made = Checkpoint.unpack(newest, read(disk, f"{newest:010d}.checkpoint"))
        if made is None:
            raise _no_checkpoint(newest, "damaged")
        checkpoint = made
    if (before := max((head or 0 for head in heads.values()), default=0)) > newest:
        raise _no_checkpoint(before, "missing, and there is no newer one")
    if newest and checkpoint.has_log and heads.get(newest) is None:
        _miss_log(checkpoint, "damaged at its beginning" if newest in heads else "missing", salvage)
    logs = [number for number in sorted(heads) if number >= newest]
    used = {f"{number:010d}.log" for number in logs} | {f"{newest:010d}.checkpoint"}
    stale = [name for name in files if name not in used]
    return Found(checkpoint, logs, stale, max((*heads, newest), default=0))


def _no_checkpoint(number: int, what: str) -> JournalError:
    return JournalError(
        f"{FOLDER}/{number:010d}.checkpoint is {what}: remove the folders progress and index to have the queues made "
        "anew from the journal: messages then come again, and queues older than it are gone"
    )


def _miss_log(checkpoint: Checkpoint, what: str, salvage: bool) -> None:
    name = _log(checkpoint.number)
    if not salvage:
        raise JournalError(
            f"{name} is {what}: acks were lost; put it back, or start with --salvage to go on without them: some "
            "messages then come again"
        )
    said = "{file} is {what}: acks since {since} are lost, and their messages come again"
    log.warning(Entry(said, file=name, what=what, since=time_of(checkpoint.dtid).isoformat(timespec="seconds")))


def _log(number: int) -> str:
    return f"{FOLDER}/{number:010d}.log"


def _numbers(files: Iterable[str], kind: str) -> list[int]:
    """Of the files of this kind."""
    split = (name.partition(".") for name in files)
    return [int(stem) for stem, _, other in split if other == kind and stem.isdigit()]


def _head(before: int) -> bytes:
    head = HEAD.pack(HEAD_MAGIC, before)
    return head + struct.pack("<I", crc32(head))


def _read_head(disk: Disk, number: int) -> int | None:
    """The number of the checkpoint before that the head of this log names; None: it has no valid head."""
    head = disk.read_named(_log(number), HEAD_SIZE, 0)
    before = int.from_bytes(head[8:16], "little")
    return before if head == _head(before) else None


def remove_stale(disk: Disk, names: list[str]) -> None:
    """A start does without these. First the others must be on disk by their names: a rename may be in memory only."""
    sync_folder(disk, FOLDER)
    for name in names:
        disk.remove(f"{FOLDER}/{name}")


def remove_before(disk: Disk, number: int) -> None:
    """What a checkpoint of this number makes needless."""
    for name in disk.files(FOLDER):
        first = name.partition(".")[0]
        if first.isdigit() and int(first) < number:
            disk.remove(f"{FOLDER}/{name}")


def read(disk: Disk, name: str) -> bytes:
    """All that is in a file."""
    file = disk.open(f"{FOLDER}/{name}")
    try:
        return disk.read(file, disk.size(file), 0)
    finally:
        disk.close(file)


def make_safe(disk: Disk, name: str, data: bytes) -> None:
    """A file has these first bytes of it and no more. They may be only in the memory of the system, and after a failed
    sync they stay there: written again they are on disk when this returns. What was reserved for more goes back."""
    file = disk.open(f"{FOLDER}/{name}")
    try:
        disk.write(file, data, 0)
        disk.truncate(file, len(data))
        disk.sync(file)
    finally:
        disk.close(file)
