"""A second reader, from docs/JOURNAL.md alone: it imports nothing of ours, so that the page is known to be enough."""

import binascii
from pathlib import Path


class Damage(Exception):
    pass


def second_reader(folder: Path) -> list[tuple[int, bytes, bytes | None]]:
    """The position, the line, and the scope of --once, if it has one, of every message that can be seen."""
    seen = []
    names = sorted(path.name for path in (folder / "journal").iterdir() if path.name.endswith(".mqks"))
    for name in names:
        text = (folder / "journal" / name).read_bytes()
        start = int(name[:20])
        found, end, mode = valid_batches(text, start)
        if name != names[-1]:
            if end < len(text):
                raise Damage(name)
        elif mode and was_on_disk(text, start, end):
            raise Damage(name)
        elif mode == b"always":
            synced = max((synced for _, _, synced in found), default=0)
            found = [batch for batch in found if batch[0] + 111 + len(batch[1]) <= synced]
        for position, lines, _ in found:
            at = position + 111
            for line in lines.split(b"\n")[:-1]:
                if line.split(b" ")[1] in (b"publish", b"send"):
                    seen.append((at, line, scope_of(line)))
                at += len(line) + 1
    return seen


def scope_of(line: bytes) -> bytes | None:
    flag = line.split(b" ")[2]
    return flag[7:] if flag.startswith(b"--once") else None


def was_on_disk(text: bytes, start: int, end: int) -> bool:
    """Does a valid batch after the first bad one call the bad one's place synced?"""
    later = [batch for at in range(end, len(text)) if text[at - 1] == 10 for batch in walk(text, start, at)[0]]
    return any(synced > start + end for _, _, synced in later)


def valid_batches(text: bytes, start: int) -> tuple[list[tuple[int, bytes, int]], int, bytes]:
    """Position, lines and synced of each batch; where they end in the file; the mode."""
    if not text:
        return [], 0, b""
    first, newline, _ = text.partition(b"\n")
    words = first.split(b" ")
    if not newline or len(words) != 4 or words[1:3] != [b"segment", b"1"]:
        return [], 0, b""
    if words[3] not in (b"always", b"interval", b"never") or not is_dtid(words[0]):
        return [], 0, b""
    return *walk(text, start, len(first) + 1), words[3]


def walk(text: bytes, start: int, at: int) -> tuple[list[tuple[int, bytes, int]], int]:
    found = []
    while at < len(text):
        header = text[at : at + 111]
        words = header.rstrip(b"\n").split(b" ")
        if len(header) != 111 or header[-1:] != b"\n" or [len(word) for word in words] != [24, 5, 20, 10, 8, 20, 8, 8]:
            break
        dtid, word, position, size, count, synced, crc, previous = words
        if word != b"batch" or not all(number.isdigit() for number in (position, size, count, synced)):
            break
        if not is_dtid(dtid) or not is_hex(crc) or not is_hex(previous) or int(position) != start + at:
            break
        batch = text[at : at + 111 + int(size)]
        if len(batch) != 111 + int(size) or b"%08x" % binascii.crc32(batch[:93] + b"00000000" + batch[101:]) != crc:
            break
        found.append((int(position), batch[111:], int(synced)))
        at += len(batch)
    return found, at


def is_dtid(word: bytes) -> bool:
    if len(word) != 24 or not word[:20].isdigit() or not word[20:].isalnum():
        return False
    month, day, hour, minute, second = (int(word[at : at + 2]) for at in range(4, 14, 2))
    return word[:4] != b"0000" and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60


def is_hex(word: bytes) -> bool:
    return len(word) == 8 and all(letter in b"0123456789abcdef" for letter in word)
