"""What a command of `mqks` is, and what several of them share: places in the journal, sizes, times, a progress bar."""

import argparse
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, TextIO


class Command(NamedTuple):
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def place(text: str) -> int | str | datetime:
    """A position, a time, or earliest or latest."""
    if text in ("earliest", "latest"):
        return text
    try:
        return int(text) if text.isascii() and text.isdigit() else datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a position, a time such as 2026-01-31T12:00 (UTC if it names no zone), earliest or latest"
        ) from None


def amount(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a count")
    return int(text)


def show_time(time: datetime | None) -> str:
    """In UTC, to the microsecond; `-` where there is none."""
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z") if time else "-"


def show_size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


class Bar:
    """A progress bar on stderr, where that is a terminal."""

    WIDTH = 40

    def __init__(self, out: TextIO) -> None:
        self._out = out if out.isatty() else None
        self._shown = -1

    def __call__(self, done: int, total: int) -> None:
        percent = 100 * done // max(total, 1)
        if self._out and percent != self._shown:
            self._shown = percent
            done_text = "#" * (percent * self.WIDTH // 100)
            print(f"\r[{done_text:{self.WIDTH}}] {percent} %", end="", file=self._out, flush=True)

    def end(self) -> None:
        if self._out and self._shown >= 0:
            print("\r" + " " * (self.WIDTH + 8) + "\r", end="", file=self._out, flush=True)
