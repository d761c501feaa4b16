"""`mqks completion`: scripts that shells take, and what they answer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mqks.cli import completion
from mqks.cli.connection import ACCESS
from mqks.cli.mqks import COMMANDS
from tests.cli.conftest import Cli
from tests.running import PATIENCE, Connection

# Anybody may have made these queues.
NAMES = [b"billing", b"bill$(touch${IFS}pwned)", b"bill`touch${IFS}pwned`", b"bill;touch", b"bill'x\"y", b"other"]


@pytest.fixture
def mqks(tmp_path: Path) -> Path:
    """The command, under its own name."""
    path = tmp_path / "mqks"
    code = f"import sys; from mqks.cli import completion, mqks; completion.PATIENCE = {PATIENCE}; sys.exit(mqks.main())"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    path.chmod(0o755)
    return path


def complete(mqks: Path, *words: str) -> list[str]:
    """What a real bash would offer when TAB is pressed at the end of these words."""
    script = """
        source <("$0" completion bash) || exit 9
        COMP_WORDS=("$0" "$@") COMP_CWORD=$#
        $(complete -p mqks | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
        for word in "${COMPREPLY[@]}"; do printf '%s\\n' "$word"; done
    """
    run = subprocess.run(
        ["bash", "--norc", "-c", script, str(mqks), *words], capture_output=True, text=True, cwd=mqks.parent, timeout=60
    )
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.split("\n")[:-1]


def test_commands_and_flags_in_bash(mqks: Path) -> None:
    assert complete(mqks, "") == [*COMMANDS, "--help", "--version"]
    assert complete(mqks, "s") == ["sub", "stats"]
    assert complete(mqks, "journal", "") == ["cat", "verify", "info", "salvage", "hold", "--help"]
    assert complete(mqks, "journal", "cat", "--f") == ["--from", "--follow"]
    assert complete(mqks, "completion", "") == ["bash", "zsh", "fish", "--help", "--url", *ACCESS]
    assert complete(mqks, "pub", "e1", "--on") == ["--once"]
    assert complete(mqks, "pub", "sub", "--ac") == []  # sub is an event there
    assert complete(mqks, "sub", "--a") == ["--add", "--ack"]
    assert complete(mqks, "sub", "q1", "e1", "--ac") == ["--ack"]
    (mqks.parent / "some-data").mkdir()
    assert complete(mqks, "journal", "info", "some") == ["some-data"]


@pytest.mark.parametrize("command", ["sub", "rebind", "delete-queue"])
def test_queues_in_bash(mqks: Path, wire: Connection, command: str) -> None:
    for name in NAMES:
        assert wire.ask(f"r1 rebind {name.decode()} --confirm") == "r1 ok "
    offered = complete(mqks, command, "bill")
    assert "other" not in offered
    # Put into a command line, each word is the name, and nothing is run.
    echo = subprocess.run(["bash", "-c", f"printf '%s\\n' {' '.join(offered)}"], capture_output=True, cwd=mqks.parent)
    assert sorted(echo.stdout.splitlines()) == sorted(name for name in NAMES if name != b"other")
    assert not (mqks.parent / "pwned").exists()
    assert complete(mqks, command, "billing", "oth") == []


def test_no_broker_no_queues(mqks: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, unused_port: int) -> None:
    monkeypatch.setenv("MQKS_URL", f"mqks://127.0.0.1:{unused_port}")
    assert complete(mqks, "sub", "b") == []
    said = cli("completion", "--queues")
    assert (said.code, said.out, said.err) == (1, "", "")


def test_queues_that_cannot_be_typed_are_left_out(cli: Cli, wire: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "PATIENCE", PATIENCE)
    for name in ("q1", "q\x1b2"):
        assert wire.ask(f"r1 rebind {name} --confirm") == "r1 ok "
    assert cli("completion", "--queues").lines == ["q1"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(cli: Cli, shell: str, tmp_path: Path) -> None:
    said = cli("completion", shell)
    assert (said.code, said.err) == (0, "")
    for word in (
        "delete-queue",
        "--remove-mask" if shell != "fish" else "-l remove-mask",
        "salvage",
        "completion --queues",
    ):
        assert word in said.out
    script = tmp_path / "script"
    script.write_text(said.out)
    if path := shutil.which(shell):
        subprocess.run([path, "-n", str(script)], check=True, timeout=60, env=os.environ)


@pytest.mark.parametrize("arguments", [[], ["tcsh"]])
def test_wrong_arguments(cli: Cli, arguments: list[str]) -> None:
    said = cli("completion", *arguments)
    assert said.code == 2
    assert "bash" in said.err
