"""Inputs in files: one text file per target, one input per line with what is not printable escaped. So a diff shows
what an input is, and a folder of thousands of files is not needed.
"""

from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
KEPT = HERE / "corpus"  # what takes ways through the code that no other does
REGRESSIONS = HERE / "regressions"  # what once failed, each after a comment that says how
COMMENT = "#"


def escape(data: bytes) -> str:
    text = data.decode("latin-1").encode("unicode_escape").decode("ascii")
    return rf"\x23{text[1:]}" if text.startswith(COMMENT) else text


def unescape(text: str) -> bytes:
    return text.encode("ascii").decode("unicode_escape").encode("latin-1")


def read(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    lines = path.read_text("ascii").split("\n")
    return [unescape(line) for line in lines if line and not line.startswith(COMMENT)]


def write(path: Path, inputs: Iterable[bytes]) -> None:
    """Short ones first, each once."""
    ordered = sorted({each for each in inputs if each}, key=lambda each: (len(each), each))
    path.write_text("".join(escape(each) + "\n" for each in ordered), "ascii")


def inputs(target: str) -> list[bytes]:
    """All that are kept for a target."""
    name = f"{target}.txt"
    return [b"", *read(REGRESSIONS / name), *read(KEPT / name)]
