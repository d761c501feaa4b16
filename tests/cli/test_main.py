"""The command as a whole: its help, its errors, its page."""

import re
import subprocess
import sys

import pytest

from mqks.cli.command import show_duration
from mqks.cli.mqks import COMMANDS
from tests.cli.conftest import Cli
from tests.cli.test_page import commands
from tests.running import RunningBroker

ALL = dict(commands())
CONNECTING = [path[0] for path in ALL if path[0] not in ("journal", "completion")]
NEEDS = {"pub": ["e1", "d1"], "sub": ["q1"], "rebind": ["q1"], "delete-queue": ["q1"], "eval": ["1"]}


def test_help_fits_a_screen(cli: Cli) -> None:
    said = cli("--help")
    assert (said.code, said.err) == (0, "")
    assert len(said.lines) <= 24
    assert max(map(len, said.lines)) <= 80
    assert [words[0] for words in said.words[4:18]] == list(COMMANDS)
    assert "docs/CLI.md" in said.out
    nothing = cli()
    assert (nothing.code, nothing.err) == (2, said.out)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_each_command_has_help_with_an_example(cli: Cli, path: tuple[str, ...]) -> None:
    said = cli(*path, "--help")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"usage: mqks {' '.join(path)} [-h]")
    example = said.out.partition("\nexample:\n  ")[2]
    assert f"mqks {' '.join(path)}" in example


def test_version_and_what_is_no_command(cli: Cli) -> None:
    assert re.fullmatch(r"mqks \d+\.\d+.*\n", cli("--version").out)
    for arguments, path in ((["pubb"], "mqks"), (["journal", "purr\x1b"], "mqks journal"), (["--url=x"], "mqks")):
        said = cli(*arguments)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(f"usage: {path} COMMAND …\nmqks: there is no command ")
        assert "\x1b" not in said.err


@pytest.mark.parametrize("command", CONNECTING)
def test_no_broker(cli: Cli, unused_port: int, command: str) -> None:
    url = f"mqks://127.0.0.1:{unused_port}"
    said = cli(command, *NEEDS.get(command, []), f"--url={url}")
    assert (said.code, said.out) == (1, "")
    assert said.err == f"mqks: cannot reach {url}: Connection refused; is mqksd running there?\n"


@pytest.mark.parametrize("command", CONNECTING)
def test_a_wrong_url(cli: Cli, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, variable in ((["--url=http://localhost"], ""), ([], "localhost:25000")):
        monkeypatch.setenv("MQKS_URL", variable)
        said = cli(command, *NEEDS.get(command, []), *flags)
        assert (said.code, said.out) == (2, "")
        assert "is no address of a broker" in said.err


def test_the_url_of_the_flag_comes_first(cli: Cli, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQKS_URL", "mqks://127.0.0.1:1")
    assert cli("ping", f"--url=mqks://127.0.0.1:{broker.port}").code == 0


def test_help_imports_neither_broker_nor_journal_nor_client() -> None:
    code = """
import sys
from mqks.cli.mqks import main
try:
    main(["--help"])
except SystemExit:
    pass
heavy = ("mqks.broker", "mqks.journal", "mqks.server", "mqks.core", "mqks.client.blocking", "asyncio")
sys.exit(", ".join(name for name in heavy if name in sys.modules) or None)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.stderr == ""


def test_durations() -> None:
    assert [show_duration(value) for value in (0, 59.9, 60, 3661, 90000, 864000)] == [
        "0 s",
        "59 s",
        "1 min",
        "1 h 1 min",
        "1 d 1 h",
        "10 d",
    ]
