"""Journals for the Spark scenarios, written straight to disk as a broker would have left them, at the disk's own speed.

All lines have one width, so a batch is an array of bytes in which only the ids change. Each row has an id of its own:
the time of its batch, and its number in the batch. Events and data repeat after so many rows that neither Parquet's
dictionaries nor its compression see it. What must be read back is summed up along the way.
"""

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt

from benchmarks.payload import FILLER, Load
from mqks.journal.format import HEADER_SIZE, batch_crc, build_batch, dtid_floor, segment_line, segment_name

BATCH_BYTES = 256 << 10  # of a full batch and of a segment, as the broker has them
SEGMENT_BYTES = 64 << 20
TIME_SIZE, NUMBER_SIZE = 20, 4  # the two parts of an id
FIRST_NUMBER = 10_000_000  # in the data: all have eight digits
PUBLISH = b"publish"
CYCLES = 25  # so often all events come until data repeats
SECOND = 1_000_000  # microseconds

Numbers = npt.NDArray[np.int64]
Sums = dict[str, int]

# Column → the sum that tells whether its values are right, in Spark's words; `Lines.add` has the same in ours.
CHECKS = {
    "position": "sum(position)",
    "time": f"sum(unix_micros(time) % {SECOND})",
    "id": f"sum(int(substr(id, -{NUMBER_SIZE})))",
    "action": "sum(length(action))",
    "event": "sum(crc32(encode(event, 'utf-8')))",
    "data": "sum(crc32(encode(data, 'utf-8')))",
}


def none() -> Sums:
    return dict.fromkeys(["rows", *CHECKS], 0)


@dataclass
class Made:
    """A journal, with the sums of CHECKS over all rows, and over those of the load's first event."""

    folder: Path
    rows: int
    every: Sums = field(default_factory=none)
    first: Sums = field(default_factory=none)


def json_data(number: int, size: int) -> bytes:
    """An object of that many bytes, 56 or more."""
    begin = b'{"nr": %d, "user": {"id": %d}, "text": "' % (FIRST_NUMBER + number, 1000 + number % 9000)
    return begin + FILLER[number % 26 : number % 26 + size - len(begin) - 2] + b'"}'


class Lines:
    """The lines of a load, a batch at a time."""

    def __init__(self, load: Load) -> None:
        self.cycle = CYCLES * len(load.events)
        events = [load.event(number) for number in range(self.cycle)]
        datas = [json_data(number, load.size) for number in range(self.cycle)]
        no_id = b"0" * (TIME_SIZE + NUMBER_SIZE)
        lines = [b"%s %s %s %s\n" % (no_id, PUBLISH, event, data) for event, data in zip(events, datas, strict=True)]
        self.width = len(lines[0])
        self.per_batch = BATCH_BYTES // self.width
        numbers = b"".join(b"%0*d" % (NUMBER_SIZE, number) for number in range(self.per_batch))
        self._numbers = np.frombuffer(numbers, np.uint8).reshape(self.per_batch, NUMBER_SIZE)
        self._lines = np.frombuffer(b"".join(lines), np.uint8).reshape(self.cycle, self.width)
        self._events = np.array([crc32(event) for event in events], np.int64)
        self._datas = np.array([crc32(data) for data in datas], np.int64)
        self._first = np.array([event == load.events[0] for event in events])

    def rows(self, start: int, count: int) -> Numbers:
        """Which of the cycle the rows are that begin with this one."""
        return np.arange(start, start + count, dtype=np.int64) % self.cycle

    def text(self, rows: Numbers, dtid: bytes) -> bytes:
        lines = self._lines[rows]
        lines[:, :TIME_SIZE] = np.frombuffer(dtid[:TIME_SIZE], np.uint8)
        lines[:, TIME_SIZE : TIME_SIZE + NUMBER_SIZE] = self._numbers[: len(rows)]
        return lines.tobytes()

    def add(self, made: Made, rows: Numbers, time: datetime, position: int) -> None:
        """To the sums; `position` is that of the first line."""
        numbers = np.arange(len(rows), dtype=np.int64)
        values = {
            "rows": np.ones_like(rows),
            "position": position + numbers * self.width,
            "time": np.full_like(rows, time.microsecond),
            "id": numbers,
            "action": np.full_like(rows, len(PUBLISH)),
            "event": self._events[rows],
            "data": self._datas[rows],
        }
        first = self._first[rows]
        for name, each in values.items():
            made.every[name] += int(each.sum())
            made.first[name] += int(each[first].sum())


def make(folder: Path, load: Load, rows: int) -> Made:
    """What `mqksd --data` has after so many messages that came until now, a million a second."""
    made, lines = Made(folder, rows), Lines(load)
    journal = folder / "journal"
    journal.mkdir(parents=True)
    time = datetime.now(UTC) - timedelta(microseconds=rows)
    end = row = crc = 0
    while row < rows:
        with (journal / segment_name(end)).open("wb") as file:
            full = end + SEGMENT_BYTES
            end += file.write(segment_line(dtid_floor(time), "always"))
            while row < rows and end < full:
                some = lines.rows(row, min(lines.per_batch, rows - row))
                lines.add(made, some, time, end + HEADER_SIZE)
                batch = build_batch(dtid_floor(time), end, lines.text(some, dtid_floor(time)), end, crc)
                crc = batch_crc(batch)
                end += file.write(batch)
                row += len(some)
                time += timedelta(microseconds=len(some))
            if row == rows:  # the empty batch by which a reader knows that all before it is on disk
                file.write(build_batch(dtid_floor(time), end, b"", end, crc))
            file.flush()
            os.fdatasync(file.fileno())  # now, and not while something is measured
    return made
