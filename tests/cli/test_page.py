"""docs/CLI.md: each command and flag is on the page, and its samples are true."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from mqks.cli.command import Command, Table
from mqks.cli.completion import of_command
from mqks.cli.connection import ACCESS
from mqks.cli.mqks import COMMANDS
from mqks.client.access import ENVIRONMENT
from mqks.server.config import OPTIONS
from tests.running import launch

PAGE = Path(__file__).parents[2] / "docs" / "CLI.md"


def commands(table: Table = COMMANDS, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    for name, entry in table.items():
        if isinstance(entry, Command):
            yield (*path, name), entry
        else:
            yield from commands(entry.commands(), (*path, name))


def test_each_command_and_flag_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^## mqks (\S+)", text, re.MULTILINE) == list(COMMANDS)
    usages = text[text.index("\n## mqks ") :]
    for path, command in commands():
        (usage,) = re.findall(rf"^    mqks {' '.join(path)}\b.*", usages, re.MULTILINE)[:1]
        flags = set(of_command(path, command).flags) - {"--help"}
        if path[0] == "pipeline":
            usage += re.findall(r"^    \[--url URL\] \[--data.*", usages, re.MULTILINE)[0]
        if "[flags of mqksd]" in usage:
            flags -= {flag for option in OPTIONS for flag in (option.flag, f"--no-{option.flag[2:]}")}
        if "[--url URL]" in usage:
            flags -= set(ACCESS)
        for flag in flags:
            assert re.search(rf"{flag}\b", usage), f"docs/CLI.md says nothing of `mqks {' '.join(path)} {flag}`"


def test_what_goes_with_each_url_is_told_once() -> None:
    before = PAGE.read_text(encoding="utf-8").partition("\n## mqks ")[0]
    assert re.findall(r"^  \| `(--\S+) FILE` ", before, re.MULTILINE) == list(ACCESS)
    assert all(f"`${variable}`" in before for variable in ENVIRONMENT.values())


def samples() -> list[tuple[str, str]]:
    """Commands, and what they print."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [
        (command, output)
        for block in blocks
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]


def normal(text: str) -> list[list[str]]:
    """Without what is different each time: ids, folders, sizes, numbers, and so the widths of columns."""
    text = re.sub(r"(?<!\S)/[^\s,]+", "FOLDER", text)
    text = re.sub(r"\b\d{20}[0-9A-Za-z]{4}\b", "ID", text)
    text = re.sub(r"\.[\w-]{43}$", ".SECRET", text, flags=re.MULTILINE)
    text = re.sub(r"[\d.]+ ([KMG]i)?B\b", "SIZE", text)
    return [re.sub(r"\d[\d,.]*", "N", line).split() for line in text.splitlines()]


def test_the_samples_are_true(tmp_path: Path) -> None:
    broker = launch(folder=tmp_path)
    try:
        broker.wait_until_it_listens()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "MQKS_URL": f"mqks://127.0.0.1:{broker.port}"}
        for command, shown in samples():
            run = subprocess.run(
                ["bash", "-c", f"{command} 2>&1"], env=environment, cwd=tmp_path, capture_output=True, text=True
            )
            assert normal(run.stdout) == normal(shown), f"$ {command}\n{run.stdout}"
    finally:
        broker.stop()
