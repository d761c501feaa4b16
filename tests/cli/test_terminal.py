"""What is different on a terminal: colours, escaped control characters, the screen of `top`."""

import pytest

from tests.cli.conftest import Cli
from tests.cli.running import on_terminal
from tests.conftest import Start
from tests.running import Connection

EVIL = "\x1b]0;owned\x07\x9b2J\u202e"
SHOWN = r"\\x1b\]0;owned\\x07\\x9b2J\\u202e"


def test_messages_have_colours_and_cannot_drive_the_terminal(wire: Connection) -> None:
    wire.send(f"r1 rebind q1 e1\nm1 publish e1 {EVIL}\n".encode())
    with on_terminal("sub", "q1", "--count=1") as terminal:
        terminal.wait_for(rf"\x1b\[2mm1\x1b\[0m \x1b\[36me1\x1b\[0m {SHOWN}\r\n")
        assert terminal.end() == 0
        assert terminal.shown == ""


def test_ctrl_c_leaves_no_colour_behind(wire: Connection) -> None:
    wire.send(b"r1 rebind q1 e1\n" + b"".join(b"m%d publish e1 d\n" % number for number in range(50_000)))
    with on_terminal("sub", "q1") as terminal:
        terminal.wait_for("m100")
        terminal.interrupt()
        assert terminal.end() == 130
        assert terminal.shown.endswith(" d\r\n\x1b[0m")


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_where_they_are_not_wanted(wire: Connection, environment: dict[str, str]) -> None:
    wire.send(f"r1 rebind q1 e1\nm1 publish e1 {EVIL}\n".encode())
    with on_terminal("sub", "q1", "--count=1", environment=environment) as terminal:
        terminal.wait_for(rf"^m1 e1 {SHOWN}\r\n")
        assert terminal.end() == 0


def test_no_colours_in_a_pipe(cli: Cli, wire: Connection) -> None:
    wire.send(b"r1 rebind q1 e1\nm1 publish e1 d1\n")
    assert cli("queues").out.isascii()
    for command in (["queues"], ["stats"], ["sub", "q1", "--count=1"]):
        assert "\x1b" not in cli(*command).out


def test_json_on_a_terminal_has_no_control_characters(wire: Connection) -> None:
    wire.send(f"r1 rebind q1 e1\nm1 publish e1 {EVIL}\x7f\n".encode())
    with on_terminal("sub", "q1", "--count=1", "--json") as terminal:
        terminal.wait_for(r'^\{"id": "m1", "event": "e1", "data": "[ -~]+", "retry": 0\}\r\n$')


@pytest.mark.usefixtures("broker")
def test_errors_cannot_drive_the_terminal() -> None:
    with on_terminal("eval", f"'{EVIL}' +") as terminal:
        terminal.wait_for(r"^mqks: the broker refused .*error \w{24}; its log says why\r\n")
        assert terminal.end() == 1
        assert "\x1b" not in terminal.shown


def test_tables_are_cut_to_the_width(wire: Connection) -> None:
    wire.send(b"r1 rebind q1 " + b" ".join(b"event%d" % number for number in range(50)) + b"\n")
    with on_terminal("queues", environment={"COLUMNS": "60"}) as terminal:
        row = terminal.wait_for(r"\r\n(q1 .*…)\r\n")[1]
        assert len(row) == 60
        assert terminal.end() == 0


# ── top ──

ENTERED, LEFT = r"^\x1b\[\?1049h\x1b\[\?25l", r"\x1b\[\?25h\x1b\[\?1049l$"


def test_top_has_a_screen_of_its_own_until_q(wire: Connection) -> None:
    wire.send(b"c1 consume q1 e1\nr1 rebind q2 e2\n")
    with on_terminal("top", "--interval=0.1") as terminal:
        terminal.wait_for(ENTERED + r"\x1b\[H\x1b\[1mmqksd ")
        for _ in range(3):
            terminal.wait_for(r"queue .*published/s .*\x1b\[K\r\nq\d ")
        terminal.press("xq")
        assert terminal.end() == 0
        assert terminal.shown.endswith("\x1b[?25h\x1b[?1049l")


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(("key", "code"), [("\x03", 130), ("Q", 0)])
def test_top_puts_the_terminal_back(key: str, code: int) -> None:
    import termios

    with on_terminal("top", "--interval=60") as terminal:
        earlier = termios.tcgetattr(terminal.fileno())
        terminal.wait_for("0 queues")
        assert termios.tcgetattr(terminal.fileno()) != earlier
        if key == "\x03":
            terminal.interrupt()
        else:
            terminal.press(key)
        assert terminal.end() == code
        assert terminal.shown.removesuffix("\x1b[0m").endswith("\x1b[?25h\x1b[?1049l")
        assert "Traceback" not in terminal.shown


def test_top_outlives_a_restart(start: Start) -> None:
    broker = start()
    url = f"--url=mqks://127.0.0.1:{broker.port}"
    with on_terminal("top", "--interval=0.1", url) as terminal:
        terminal.wait_for("0 queues")
        broker.process.kill()
        terminal.wait_for("connection lost, reconnecting")
        start(f"--port={broker.port}")
        terminal.wait_for("0 queues")
        terminal.press("q")
        assert terminal.end() == 0


@pytest.mark.usefixtures("broker")
def test_top_shows_no_more_than_the_terminal_has_lines(wire: Connection) -> None:
    wire.send(b"".join(b"r%d rebind q%d e\n" % (number, number) for number in range(100)))
    with on_terminal("top", "--interval=60", environment={"LINES": "10"}) as terminal:
        terminal.wait_for("100 queues")
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.shown.count("\r\n") == 8
