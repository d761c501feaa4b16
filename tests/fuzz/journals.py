r"""A journal's files: any bytes as segments.

An input says what a broker wrote, and what became of it: segments parted by \x01, their batches by \x02, lines by
newlines. After a \x03 come changes of three bytes each: a place in the file that the first two name is given the third,
or the file is cut there if that is \xff. What must hold: readers give what another reader gives, written from the
format's page alone, or one of our errors; the columns for Spark are the same messages; what salvage leaves can be read,
and has all that could be read before.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mqks.broker.protocol.bridge import name_in
from mqks.core.history import answers
from mqks.core.keeping import first_bad
from mqks.journal import Damaged, JournalError, Reader, UnknownVersion
from mqks.journal.columns import NAMES, Columns
from mqks.journal.format import VERSION, Batches, parse_segment_line
from mqks.journal.salvage import salvage
from mqks.journal.verify import verify
from tests.journal.making import SECOND, TIME, Making
from tests.journal.second_reader import Damage, second_reader
from tests.journal.test_columns import expected, rows_of

MODES = ("always", "interval", "never")
CUT = 0xFF
FAST = Path("/dev/shm")  # where there is one: thousands of small folders are made
Seen = list[tuple[int, bytes, bytes | None]]


@contextmanager
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="mqks-fuzz-", dir=FAST if FAST.is_dir() else None))
    try:
        yield made / "data"
    finally:
        shutil.rmtree(made)


# What a broker writes; what is not of this kind has no meaning, but may do no harm either.
WRITTEN = re.compile(
    rb"[^ ]+ (publish (--once(=[^ ]+)? )?(?!-|\{)[^ ]+ .*|send (--once(=[^ ]+)? )?\{.*|rebind .*|delete_queue .*)",
    re.DOTALL,
)


def make(script: bytes, place: Path) -> Making:
    made: Making | None = None
    for number, segment in enumerate(script.split(b"\x01")):
        mode = MODES[segment[0] % len(MODES)] if segment[:1] in b"012" and segment else MODES[0]
        if made is None:
            made = Making(place, fsync=mode)
        else:
            made.segment(fsync=mode, gap=number % 2)
        for batch in segment.split(b"\x02")[1:]:
            made.batch(*(line for line in batch.split(b"\n") if line))
    assert made is not None
    return made


def change(edits: bytes, made: Making) -> None:
    files = sorted((made.folder / "journal").iterdir())
    content = [path.read_bytes() for path in files]
    for at in range(0, len(edits) - 2, 3):
        place, value = int.from_bytes(edits[at : at + 2], "big"), edits[at + 2]
        which = place % len(files)
        where = place // len(files) % (len(content[which]) + 1)
        if value == CUT:
            content[which] = content[which][:where]
        else:
            content[which] = content[which][:where] + bytes([value]) + content[which][where + 1 :]
    for path, data in zip(files, content, strict=True):
        path.write_bytes(data)


def seen(place: Path) -> tuple[Seen, JournalError | None]:
    got: Seen = []
    try:
        reader = Reader(place)
        reader.segments()
        reader.find_time(TIME + 2.5 * SECOND)
        for message in reader.messages():
            got.append((message.position, message.line, message.once))
    except JournalError as error:
        return got, error
    return got, None


def journals(data: bytes) -> None:
    script, _, edits = data.partition(b"\x03")
    with folder() as place:
        made = make(script, place)
        change(edits, made)
        got, error = seen(place)
        is_written = all(WRITTEN.fullmatch(line) for _, line in made.lines)
        if is_written:
            check_reader(place, got, error, set(made.lines))
        for path in (place / "journal").iterdir():
            check_compiled(path.read_bytes(), int(path.name[:20]), is_written)
        verify(place)
        check_salvage(place)


def check_reader(place: Path, got: Seen, error: JournalError | None, written: set[tuple[int, bytes]]) -> None:
    assert {(position, line) for position, line, _ in got} <= written, "a message that nobody wrote"
    if isinstance(error, UnknownVersion):
        return
    try:
        others = second_reader(place)
    except Damage:
        assert isinstance(error, Damaged), error
        return
    assert error is None, error
    assert got == others


def check_compiled(text: bytes, start: int, is_written: bool) -> None:
    """What looks at batches as they stand in memory: for Spark, and for `history`."""
    line = parse_segment_line(text)
    begins = line.size if line and line.version == VERSION else 0
    good = first_bad(text, start)
    assert 0 <= good <= len(text)
    batches = Batches(lambda size, offset: text[offset : offset + size], start, begins, len(text), chain=False)
    valid = [bytes(batch) for _, batch in batches]
    columns = Columns(NAMES)
    position, rows = start + begins, []
    taken = columns.feed(text[begins:], position)
    for batch in valid:
        rows += expected(batch, position)
        position += len(batch)
    assert taken == position - start - begins, "columns end where batches do not"
    assert rows_of(columns) == rows
    if good > begins:
        answers(text[begins:good], start + begins, b"h ok ", 0, 1 << 63, b"", 1 << 62, 1 << 30, None, name_in)
    if is_written:
        valid_text = text[begins : begins + taken]
        shown, *_ = answers(valid_text, start + begins, b"", 0, 1 << 63, b"", 1 << 62, 1 << 30, None, name_in)
        places = [int(line.split(b" ")[0]) for line in shown.splitlines()]
        assert places == [row[0] for row in rows], "history shows other messages than Spark gets"


def check_salvage(place: Path) -> None:
    """What it leaves can be read, and what could be read is still there."""
    before = {(position, line) for position, line, _ in seen(place)[0]}
    try:
        salvage(place)
    except UnknownVersion:
        return
    after, error = seen(place)
    assert error is None, error
    assert before <= {(position, line) for position, line, _ in after}, "salvage lost what was good"
    assert salvage(place) == [], "a second salvage finds more"
