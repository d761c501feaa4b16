"""The journal's files, read as docs/JOURNAL.md describes them: which messages stand in which bytes."""

import re
from dataclasses import dataclass
from pathlib import Path

HEADER = 111
MESSAGES = (b"publish", b"send")
BATCH = re.compile(rb"[0-9A-Za-z]{24} batch (\d{20}) (\d{10}) (\d{8}) (\d{20}) ([0-9a-f]{8}) ([0-9a-f]{8})\n")


@dataclass(frozen=True)
class Batch:
    file: str  # relative to the data folder
    start: int  # offset in the file
    end: int
    messages: tuple[str, ...]
    position: int
    synced: int  # up to here the journal was on disk when it was written
    defines: bool  # has lines that say what queues are


def batches(folder: Path) -> list[Batch]:
    """All batches of an undamaged journal."""
    found = []
    for path in sorted((folder / "journal").glob("*.mqks")):
        data = path.read_bytes()
        at = data.find(b"\n") + 1
        while header := BATCH.match(data, at):
            end = at + HEADER + int(header[2])
            if end > len(data):
                break
            lines = [line.split(b" ", 2) for line in data[at + HEADER : end].splitlines()]
            messages = tuple(line[0].decode() for line in lines if line[1] in MESSAGES)
            where = int(header[1]), int(header[4])
            found.append(Batch(f"journal/{path.name}", at, end, messages, *where, len(messages) < len(lines)))
            at = end
    return found


def changed(before: Path, after: Path) -> list[Batch]:
    """Batches whose bytes are not where they were."""
    contents = {path.name: path.read_bytes() for path in (after / "journal").glob("*.mqks")}
    original = {path.name: path.read_bytes() for path in (before / "journal").glob("*.mqks")}
    return [
        batch
        for batch in batches(before)
        if contents.get(Path(batch.file).name, b"")[batch.start : batch.end]
        != original[Path(batch.file).name][batch.start : batch.end]
    ]
