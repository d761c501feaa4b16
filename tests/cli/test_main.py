"""The command as a whole: its help, its errors, its page."""

import re
import socketserver
import subprocess
import sys
import threading

import pytest

from mqks.cli.mqks import COMMANDS, SYNONYMS
from mqks.formatting import duration_in_two_units
from tests.cli.conftest import Cli
from tests.cli.running import ended, started
from tests.cli.test_page import commands
from tests.running import RunningBroker

ALL = dict(commands())
ALONE = ("token", "doctor", "journal", "pipeline", "up", "completion")  # these work without a broker
CONNECTING = [path[0] for path in ALL if path[0] not in ALONE]
NEEDS = {"pub": ["e1", "d1"], "sub": ["q1"], "rebind": ["q1"], "delete-queue": ["q1"], "eval": ["1"]}


def test_help_fits_a_screen(cli: Cli) -> None:
    said = cli("--help")
    assert (said.code, said.err) == (0, "")
    assert len(said.lines) <= 24
    assert max(map(len, said.lines)) <= 80
    assert [words[0] for words in said.words[4 : 4 + len(COMMANDS)]] == list(COMMANDS)
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
    for arguments, advice in (
        (["pubb"], "did you mean pub?"),
        (["journal", "ver\x1bify"], "did you mean verify?"),
        (["publish", "e1", "d1"], "did you mean pub?"),
        (["subscirbe"], "did you mean sub?"),
        (["consume"], "did you mean sub?"),
        (["list"], "did you mean queues?"),
        (["delete_queue"], "did you mean delete-queue?"),
        (["salvage"], "did you mean journal salvage?"),
        (["token", "create"], "did you mean new?"),
        (["--urls=x"], "remove it, or see mqks --help for all there are"),
        (["token", "--urls=x"], "remove it, or see mqks token --help for all there are"),
    ):
        said = cli(*arguments)
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
        assert said.err.startswith("mqks: unknown command '") and said.err.endswith(f"'; {advice}\n")
        assert "\x1b" not in said.err


def test_synonyms_are_no_commands_and_stand_for_one() -> None:
    for path, synonyms in SYNONYMS.items():
        below = {" ".join(words) for words in ALL} | {words[0] for words in ALL}
        assert not {f"{path} {word}".removeprefix("mqks ") for word in synonyms} & below
        assert {f"{path} {word}".removeprefix("mqks ") for word in synonyms.values()} <= below


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pub", "--onse", "hello", "x"], "unknown argument '--onse'; did you mean --once?"),
        (["sub", "q1", "--cuont=1"], "unknown argument '--cuont'; did you mean --count?"),
        (["ping", "x", "y"], "unknown argument 'y'; remove it, or see mqks ping --help for all there are"),
        (["pub"], "the following arguments are required: EVENT; see mqks pub --help"),
    ],
)
def test_wrong_arguments_are_one_line(cli: Cli, words: list[str], said: str) -> None:
    found = cli(*words)
    assert (found.code, found.out, found.err) == (2, "", f"mqks: {said}\n")


@pytest.mark.parametrize("command", CONNECTING)
def test_no_broker(cli: Cli, unused_port: int, command: str) -> None:
    url = f"mqks://127.0.0.1:{unused_port}"
    said = cli(command, *NEEDS.get(command, []), f"--url={url}")
    assert (said.code, said.out) == (1, "")
    assert said.err == f"mqks: cannot reach {url}: Connection refused; is mqksd running there?\n"


@pytest.mark.parametrize("words", [["archive"], ["stats"], ["run", "stats"], ["sql", "SELECT 1"], ["replay"]])
def test_a_wrong_url_of_a_pipeline_is_told_before_spark_starts(
    cli: Cli, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for flags, variable in ((["--url=http://localhost"], ""), ([], "localhost:25000")):
        monkeypatch.setenv("MQKS_URL", variable)
        said = cli("pipeline", *words, *flags)
        assert (said.code, said.out) == (2, "")
        assert "is no address of a broker" in said.err


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


def test_flags_may_stand_before_the_command(cli: Cli, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQKS_URL", "mqks://127.0.0.1:1")
    url = f"mqks://127.0.0.1:{broker.port}"
    for words in (["--url", url, "--json", "queues"], ["--json", f"--url={url}", "queues"]):
        assert cli(*words).json == []
    nothing = cli("--url", url)
    assert (nothing.code, nothing.out) == (2, "")
    assert nothing.err.startswith("usage: mqks COMMAND …\n")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\nServer: none\r\n\r\n", b"\xff\n\n"])
@pytest.mark.parametrize("command", [["queues"], ["sub", "q1"]])
def test_a_server_that_is_no_broker(cli: Cli, command: list[str], answer: bytes) -> None:
    class Other(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1000)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"mqks://127.0.0.1:{server.server_address[1]}"
        said = cli(*command, f"--url={url}")
        server.shutdown()
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"mqks: cannot reach {url}: it "), "one line, at once"
    assert said.err.count("\n") == 1
    assert ("is this the broker's port" in said.err) is bool(answer)


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("mqks stats >&-", 1, "mqks: stdout is closed\n"),
        ("mqks --help >&-", 1, "mqks: stdout is closed\n"),
        ("mqks pub e1 <&-", 1, "mqks: stdin is closed\n"),
        ("mqks stats 2>&-", 1, ""),
        ("mqks --help >/dev/full", 1, "mqks: [Errno 28] No space left on device\n"),
        ("mqks pub --help >/dev/full", 1, "mqks: [Errno 28] No space left on device\n"),
        ("mqks stats >/dev/full", 1, "mqks: [Errno 28] No space left on device\n"),
        ("mqks --help | true; exit ${PIPESTATUS[0]}", 0, ""),
        ("mqks pub --help | true; exit ${PIPESTATUS[0]}", 0, ""),
    ],
)
def test_streams_that_cannot_be_used(line: str, code: int, said: str) -> None:
    run = subprocess.run(
        ["bash", "-c", f'mqks() {{ {sys.executable} -m mqks.cli.mqks "$@"; }}; {line}'],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.returncode, run.stdout, run.stderr) == (code, "", said)


@pytest.mark.usefixtures("broker")
def test_what_an_encoding_cannot_carry_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with started("rebind", "例", "é*") as rebind:
        said = ended(rebind)
    assert (said.code, said.out) == (0, "\\u4f8b is subscribed to \\xe9*\n")
    assert said.err.startswith("mqks: note: '\\xe9*' is taken as a name")


def test_help_imports_neither_broker_nor_journal_nor_client() -> None:
    code = """
import sys
from mqks.cli.mqks import main
from mqks.formatting import duration_in_two_units
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
    assert [duration_in_two_units(value) for value in (0, 59.9, 60, 3661, 90000, 864000)] == [
        "0 s",
        "59 s",
        "1 min",
        "1 h 1 min",
        "1 d 1 h",
        "10 d",
    ]
