"""Small journals for tests, written in plain Python: a folder as a broker leaves it, batch by batch.

made = Making(tmp_path)             # the first segment, fsync=always
made.batch(b"m1 publish e1 d1")     # a second later each time; calls all before it synced
made.segment()                      # seals it, and starts the next one; gap=n leaves n positions out
made.batch(b"m2 publish e1 d2")
made.sync()                         # an empty batch that calls all before it synced
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from mqks.journal.format import HEADER_SIZE, build_batch, dtid_floor, parse_header, segment_line, segment_name

TIME = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)

# A message as long as the header of a batch, and with ` batch ` where that has it, but not as its second word.
LIKE_A_HEADER = b"z23456 publish e1 zzzzzz batch ".ljust(HEADER_SIZE - 1, b"9")


class Making:
    def __init__(self, folder: Path, *, fsync: str = "always", start: int = 0) -> None:
        self.folder = folder
        self.time = TIME
        self.end = start  # the position after all that is written
        self.crc = 0  # of the last batch
        self.lines: list[tuple[int, bytes]] = []  # every line written, with its position
        (folder / "journal").mkdir(parents=True)
        self.segment(fsync=fsync)

    def segment(self, *, fsync: str = "always", gap: int = 0) -> int:
        """Starts a segment; answers its position."""
        if gap:
            self.crc = 0
        self.start = self.end + gap
        self.end = self.start
        self.path = self.folder / "journal" / segment_name(self.start)
        self.path.touch(exist_ok=False)
        self.append(segment_line(dtid_floor(self.time), fsync))
        return self.start

    def batch(self, *lines: bytes, synced: int | None = None, time: datetime | None = None) -> int:
        """Adds a batch of lines, given without their newlines; answers its position."""
        self.time = time or self.time + SECOND
        position = self.end
        text = b"".join(line + b"\n" for line in lines)
        batch = build_batch(dtid_floor(self.time), position, text, position if synced is None else synced, self.crc)
        header = parse_header(batch[: len(batch) - len(text)])
        assert header is not None
        self.crc = header.crc
        at = header.end - len(text)
        for line in lines:
            self.lines.append((at, line))
            at += len(line) + 1
        self.append(batch)
        return position

    def sync(self) -> int:
        return self.batch(time=self.time)

    def append(self, data: bytes) -> None:
        """Any bytes, at the end of the segment."""
        with self.path.open("ab") as file:
            file.write(data)
        self.end += len(data)


def small(folder: Path) -> Making:
    """Two segments, with messages of each kind, control lines, a batch that is not synced yet."""
    made = Making(folder)
    made.batch(b"m1 publish e1 d1", b"m2 publish order.new ")
    made.batch(b's1 send {"event": "e2"}')
    made.segment()
    made.batch(b"20260131120000000000aaaa rebind q1 e1", b"m3 publish e1 a b")
    made.batch(b"m4 publish e1 unseen")
    return made
