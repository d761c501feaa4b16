"""`mqks pub`."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.running import ended, on_terminal, started, with_stdin
from tests.conftest import Brokers
from tests.running import Connection


@pytest.fixture
def q1(wire: Connection) -> Connection:
    """A connection whose consumer of q1 gets e1."""
    assert wire.ask("c1 consume q1 e1 --confirm") == "c1 ok "
    return wire


def got(wire: Connection, count: int) -> list[str]:
    return [wire.line().decode("utf-8", "surrogateescape").split(" ", 2)[2] for _ in range(count)]


def test_one_message(cli: Cli, q1: Connection) -> None:
    said = cli("pub", "e1", "two words")
    assert (said.code, said.err) == (0, "")
    assert got(q1, 1) == [f"{said.lines[0]} event=e1 two words"]
    assert cli("pub", "e1", "", "--id", "m1", "--json").json == {"id": "m1", "event": "e1"}
    assert got(q1, 1) == ["m1 event=e1 "]
    assert cli("pub", "e1", "d3", "--id=m3", "--no-confirm").lines == ["m3"]
    assert got(q1, 1) == ["m3 event=e1 d3"]
    assert cli("pub", "e1", "--id=m4", "--", "--help").code == 0
    assert got(q1, 1) == ["m4 event=e1 --help"]
    assert cli("pub", "--id=m5", "--", "e1", "-d").code == 0
    assert got(q1, 1) == ["m5 event=e1 -d"]


def test_lines_of_stdin(q1: Connection) -> None:
    said = with_stdin("a\nb c\r\n\n例 🙂\n".encode() + b"\xff\nlast", "pub", "e1", "--id=x")
    assert said.code == 0, said.err
    assert said.err.startswith("published 6 messages, ")
    assert said.out == ""
    assert got(q1, 6) == [
        "x-1 event=e1 a",
        "x-2 event=e1 b c",
        "x-3 event=e1 ",
        "x-4 event=e1 例 🙂",
        "x-5 event=e1 \udcff",
        "x-6 event=e1 last",
    ]


def test_wrong_lines_are_named_and_the_rest_goes_on(q1: Connection) -> None:
    said = with_stdin(b"a\nb\tc\nd\0e\nf\r\r\ng\n", "pub", "e1", "-", "--json")
    assert said.code == 1
    assert [line.partition(":")[2].partition(":")[0] for line in said.err.splitlines()] == [
        " line 2",
        " line 3",
        " line 4",
    ]
    assert "a TAB" in said.err
    assert "a NUL" in said.err
    assert {name: said.json[name] for name in ("published", "wrong")} == {"published": 2, "wrong": 3}
    assert [line.rpartition(" ")[2] for line in got(q1, 2)] == ["a", "g"]


def test_not_every_wrong_line_is_named(q1: Connection) -> None:
    said = with_stdin(b"\t\n" * 1000 + b"end\n", "pub", "e1")
    assert said.code == 1
    *named, more, end = said.err.splitlines()
    assert len(named) == 20
    assert more == "mqks: … and 980 more lines"
    assert end.endswith("; wrong: 1,000 lines")
    assert got(q1, 1)[0].endswith(" end")


@pytest.mark.parametrize("flags", [(), ("--no-confirm",), ("--once",), ("--rate=1000000/s",)])
def test_many_lines_in_order(q1: Connection, flags: tuple[str, ...]) -> None:
    count = 20_000
    said = with_stdin(b"".join(b"%d\n" % number for number in range(count)), "pub", "e1", *flags)
    assert said.code == 0, said.err
    assert [int(line.rpartition(" ")[2]) for line in got(q1, count)] == list(range(count))


def test_a_file_published_again_arrives_once(q1: Connection) -> None:
    for _ in range(2):
        assert with_stdin(b"a\nb\n", "pub", "e1", "--id=import", "--once").code == 0
    assert with_stdin(b"a\nb\n", "pub", "e1", "--id=import", "--once=other").code == 0
    assert got(q1, 4) == [f"import-{number} event=e1 {data}" for number, data in ((1, "a"), (2, "b")) * 2]
    assert q1.ask("p1 ping") == "p1 ok "  # and nothing else came


def test_lines_are_published_as_they_come(q1: Connection) -> None:
    with started("pub", "e1", stdin=subprocess.PIPE) as pub:
        assert pub.stdin
        for data in ("first", "second"):
            pub.stdin.write(f"{data}\n".encode())
            pub.stdin.flush()
            assert got(q1, 1)[0].endswith(data)
        assert ended(pub).code == 0


def test_a_bar_for_a_file_and_a_counter_for_a_pipe(q1: Connection, tmp_path: Path) -> None:
    """Slow enough to be seen: ten lines per second."""
    lines = tmp_path / "lines"
    lines.write_text("a\n" * 5)
    reader, writer = os.pipe()
    os.write(writer, lines.read_bytes())
    os.close(writer)
    for stdin, shown in (
        (os.open(lines, os.O_RDONLY), r"\[#+ +\] \d+ % \d+ msg/s"),
        (reader, r"\d messages, \d+ msg/s"),
    ):
        with on_terminal("pub", "e1", "--rate=10", stdin=stdin) as terminal:
            terminal.wait_for(shown)
            terminal.wait_for("published 5 messages")
            assert terminal.end() == 0
        os.close(stdin)
        got(q1, 5)


def test_ctrl_c_tells_how_far_it_was(q1: Connection) -> None:
    with started("pub", "e1", stdin=subprocess.PIPE) as pub:
        assert pub.stdin
        for data in (b"first\n", b"second\nunfinished"):  # when the second one comes the first one is done
            pub.stdin.write(data)
            pub.stdin.flush()
            got(q1, 1)
        pub.send_signal(signal.SIGINT)
        assert pub.stderr
        assert re.fullmatch(rb"published [12] messages?, [\d,]+ msg/s\n", pub.stderr.read())
        assert pub.wait(60) == 130


def test_a_broker_that_refuses(shared_broker: Brokers) -> None:
    url = f"--url=mqks://127.0.0.1:{shared_broker('--max-line=100').port}"
    said = with_stdin(b"good\n" + b"x" * 100 + b"\nafter\n", "pub", "e1", url, "--json")
    assert said.code == 1
    assert re.fullmatch(r"mqks: line 2: the broker refused '.*': error \w{24}; its log says why\n", said.err)
    assert (said.json["published"], said.json["wrong"]) == (2, 1)


def test_a_broker_that_refuses_a_line_with_a_long_id(shared_broker: Brokers) -> None:
    url = f"--url=mqks://127.0.0.1:{shared_broker('--max-line=300').port}"
    said = with_stdin(b"good\n" + b"x" * 300 + b"\nafter\n", "pub", "e1", url, "--json", "--id", "i" * 150)
    assert said.code == 1
    assert re.fullmatch(r"mqks: line 2: the broker refused 'i{100}…': error \w{24}; its log says why\n", said.err)
    assert (said.json["published"], said.json["wrong"]) == (2, 1)


def test_lines_from_a_terminal(q1: Connection) -> None:
    with on_terminal("pub", "e1") as terminal:
        terminal.wait_for("each line that you type is a message; Ctrl-D ends")
        terminal.press("typed\n")
        assert got(q1, 1)[0].endswith(" typed")
        terminal.press("\x04")
        terminal.wait_for("published 1 message")
        assert terminal.end() == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["two words", "d1"], "not an event"),
        (["e1,retry=1", "d1"], "not an event"),
        (["e1", "a\tb"], "a TAB"),
        (["e1", "a\nb"], "a newline"),
        (["e1", "d1", "--id=--x"], "--id: '--x' is not a name"),
        (["e1", "d1", "--id="], "--id: '' is not a name"),
        (["e1", "d1", "--rate=fast"], "not a rate"),
        (["e1", "d1", "--rate=0"], "not a rate"),
        (["e1", "d1", "--once", "--no-confirm"], "--once is always confirmed"),
        (["e1", "d1", "d2"], "unknown argument 'd2'"),
        (["e1", "--", "d1", "--d2"], "unknown argument '--d2'"),
        ([], "required: EVENT"),
    ],
)
def test_wrong_arguments(cli: Cli, arguments: list[str], said: str) -> None:
    found = cli("pub", *arguments)
    assert found.code == 2
    assert said in found.err
