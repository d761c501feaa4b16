"""`mqks journal …` as people run it."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mqks.broker import Broker
from mqks.cli.command import Bar
from mqks.cli.mqks import main
from mqks.formatting import size_in_tenths
from mqks.journal import Reader
from mqks.journal.disk import RealDisk
from tests.cli.running import on_terminal
from tests.journal.making import Making, small

CAT = [
    "153 2026-01-31T12:00:01.000000Z m1 publish e1 d1",
    "170 2026-01-31T12:00:01.000000Z m2 publish order.new ",
    '303 2026-01-31T12:00:02.000000Z s1 send {"event": "e2"}',
    "518 2026-01-31T12:00:03.000000Z m3 publish e1 a b",
]
TORN = "not finished, or torn by a crash: the broker cuts it when it starts"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Making:
    """A journal in the folder that is the default."""
    monkeypatch.chdir(tmp_path)
    return small(tmp_path / "mqks-data")


def run(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[int, list[str], str]:
    code = main(["journal", *args])
    out, err = capfd.readouterr()
    return code, out.splitlines(), err


def spoil(made: Making) -> Path:
    path = made.folder / "journal" / f"{0:020d}.mqks"
    path.write_bytes(path.read_bytes().replace(b"d1", b"dX"))
    return path


def process(*args: str, **options: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "mqks.cli.mqks", "journal", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload, no-any-return]


# ── cat ──


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], CAT),
        (["--from=earliest", "--to=latest"], CAT),
        (["--from=latest"], []),
        (["--from=170", "--to=303"], CAT[1:2]),
        (["--from=2026-01-31T12:00:02"], CAT[2:]),
        (["--from=2026-01-31T14:00:02+02:00", "--to", "2026-01-31T12:00:03Z"], CAT[2:3]),
        (["--events=order.*,e2"], CAT[1:3]),
        (["--limit=2"], CAT[:2]),
        (["--limit=0"], []),
        (["--from=153", "--follow", "--limit=4"], CAT),
    ],
)
def test_cat(capfd: pytest.CaptureFixture[str], options: list[str], shown: list[str]) -> None:
    assert run(capfd, "cat", *options) == (0, shown, "")


def test_cat_json_and_raw(made: Making, capfd: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = run(capfd, "cat", "--json", "--limit=1", str(made.folder))
    assert [json.loads(line) for line in lines] == [
        {
            "position": 153,
            "time": "2026-01-31T12:00:01.000000Z",
            "id": "m1",
            "action": "publish",
            "event": "e1",
            "data": "d1",
            "once": None,
        }
    ]
    _, lines, _ = run(capfd, "cat", "--raw", "--to=192")
    assert lines == (made.folder / "journal" / f"{0:020d}.mqks").read_text().splitlines()[1:4]


def test_cat_shows_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = Making(tmp_path / "once", fsync="never")
    made.batch(b"m1 publish --once=orders e1 d1", b"s1 send --once {}")
    _, lines, _ = run(capfd, "cat", str(made.folder))
    assert [line.split(" ", 2)[2] for line in lines] == ["m1 publish --once=orders e1 d1", "s1 send --once {}"]
    _, lines, _ = run(capfd, "cat", "--json", str(made.folder))
    assert [(json.loads(line)["once"], json.loads(line)["event"]) for line in lines] == [("orders", "e1"), ("", "")]


def test_cat_shows_bytes_as_they_are(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    made = Making(tmp_path / "data", fsync="never")
    made.batch(b"m1 publish e1 \xff\r")
    assert main(["journal", "cat", str(made.folder)]) == 0
    assert capfdbinary.readouterr().out.endswith(b" m1 publish e1 \xff\r\n")
    assert main(["journal", "cat", "--json", str(made.folder)]) == 0
    told = json.loads(capfdbinary.readouterr().out)
    assert (told["data_base64"], told.get("data")) == ("/w0=", None)


@pytest.mark.parametrize("flag", ["--limit=2", "--raw", "--json"])
def test_cat_cannot_drive_a_terminal(tmp_path: Path, flag: str) -> None:
    made = Making(tmp_path / "data", fsync="never")
    made.batch(b"m1 publish e1 \x1b]0;owned\x07\xff", b"m2 publish e1 d\x7f")
    with on_terminal("journal", "cat", flag, str(made.folder)) as terminal:
        assert terminal.end() == 0
        assert terminal.shown.replace("\r\n", "").isprintable()
        assert "m2" in terminal.shown.splitlines()[-1]


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    "args",
    [
        ["cat", "--from=yesterday"],
        ["cat", "--limit=-1"],
        ["cat", "--raw", "--json"],
        ["cat", "--raw", "--limit=1"],
        ["cat", "--raw", "--events=e1"],
        ["purr"],
    ],
)
def test_wrong_arguments(capfd: pytest.CaptureFixture[str], args: list[str]) -> None:
    code, out, err = run(capfd, *args)
    assert (code, out) == (2, [])
    assert "see mqks journal" in err and err.count("\n") == 1


def test_without_arguments_it_shows_its_help(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd)
    assert (code, out) == (2, [])
    assert err.startswith("usage: mqks journal COMMAND")


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["cat", "nowhere"], "there is no journal in nowhere: name the folder"),
        (["verify", "nowhere"], "there is no journal in nowhere"),
        (["salvage", "nowhere"], "there is no journal in nowhere"),
        (["info", "nowhere"], "there is no journal in nowhere"),
        (["cat", "--from=999999"], "beyond the end of the journal, 668"),
    ],
)
def test_what_cannot_be_done(capfd: pytest.CaptureFixture[str], args: list[str], said: str) -> None:
    code, out, err = run(capfd, *args)
    assert (code, out) == (1, [])
    assert err.startswith("mqks: ")
    assert said in err
    assert err.count("\n") == 1


def test_cat_stops_at_damage(made: Making, capfd: pytest.CaptureFixture[str]) -> None:
    spoil(made)
    code, out, err = run(capfd, "cat")
    assert (code, out) == (1, [])
    assert "is damaged at byte 42" in err


def test_whoever_reads_may_stop_reading(tmp_path: Path) -> None:
    made = Making(tmp_path / "data", fsync="never")
    for _ in range(100):
        made.batch(b"m1 publish e1 " + b"x" * 10_000)
    with process("cat", str(made.folder)) as cat:
        assert cat.stdout
        assert cat.stderr
        assert cat.stdout.readline().startswith(b"152 ")
        cat.stdout.close()
        assert cat.stderr.read() == b""
        assert cat.wait(60) == 0


def test_follow_until_ctrl_c(made: Making) -> None:
    with process("cat", "--follow") as cat:
        assert cat.stdout
        assert cat.stderr
        assert [cat.stdout.readline().decode().rstrip("\n") for _ in CAT] == CAT
        made.sync()
        assert cat.stdout.readline().endswith(b"unseen\n")
        cat.send_signal(signal.SIGINT)
        assert cat.stderr.read() == b""
        assert cat.wait(60) == 130


# ── verify, salvage ──


def test_verify_and_salvage(made: Making, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "verify") == (0, ["2 segments, 4 batches, 6 lines, 668 B", "good"], "")
    assert run(capfd, "salvage") == (0, ["no damage: nothing was changed"], "")
    path = spoil(made)
    made.append(b"torn")
    assert run(capfd, "verify") == (
        1,
        [
            f"{path.name} at byte 42: the checksum of the batch is wrong (150 bytes)",
            f"{made.path.name} at byte 341: the file ends inside the header of a batch (4 bytes); {TORN}",
            "2 segments, 3 batches, 4 lines, 672 B",
            "1 problems; what is damaged can be salvaged: stop the broker, then `mqks journal salvage`",
        ],
        "",
    )
    assert run(capfd, "salvage") == (
        0,
        [
            f"{path.name} was damaged; as it was it is now mqks-data/aside/{path.name}.damaged",
            "  kept 0 to 42, 42 B",
            "  kept 192 to 327, 135 B",
            "  lost 42 to 192, 150 B: the checksum of the batch is wrong",
            "1 segments salvaged: start the broker",
        ],
        "",
    )
    code, out, _ = run(capfd, "verify")
    assert (code, out[0]) == (0, "nothing from 42 to 150: removed by retention, or cut after a crash or by salvage")


def test_verify_json(made: Making, capfd: pytest.CaptureFixture[str]) -> None:
    spoil(made)
    code, (line,), _ = run(capfd, "verify", "--json")
    report = json.loads(line)
    assert (code, report["good"], report["batches"], report["torn"]) == (1, False, 3, None)
    assert report["problems"][0]["offset"] == 42


def test_the_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for out, shown in (
        (Terminal(), ["[" + " " * 40 + "] 0 %", "[" + "#" * 20 + " " * 20 + "] 50 %"]),
        (io.StringIO(), []),
    ):
        bar = Bar(out)
        for done in (0, 1, 500):
            bar(done, 1000)
        bar.end()
        assert [text for text in out.getvalue().split("\r") if text.strip()] == shown


# ── info ──


def test_info(made: Making, capfd: pytest.CaptureFixture[str]) -> None:
    (made.folder / "aside").mkdir()
    (made.folder / "aside" / "x.cut").write_bytes(b"12345")
    code, out, err = run(capfd, "info")
    assert (code, err) == (0, "")
    assert [line.split() for line in out] == [
        ["start", "end", "size", "first", "last", "fsync"],
        ["0", "327", "327", "B", "2026-01-31T12:00:01.000000Z", "2026-01-31T12:00:02.000000Z", "always", "sealed"],
        ["327", "668", "341", "B", "2026-01-31T12:00:03.000000Z", "2026-01-31T12:00:04.000000Z", "always", "live"],
        ["earliest", "0,", "latest", "536,", "668", "B"],
        ["aside:", "x.cut,", "5", "B"],
    ]


@pytest.mark.usefixtures("made")
def test_info_json(capfd: pytest.CaptureFixture[str]) -> None:
    _, (line,), _ = run(capfd, "info", "--json")
    content = json.loads(line)
    assert (content["earliest"], content["latest"], content["bytes"]) == (0, 536, 668)
    assert content["segments"][0] == {
        "name": "00000000000000000000.mqks",
        "start": 0,
        "end": 327,
        "size": 327,
        "first": "2026-01-31T12:00:01.000000Z",
        "last": "2026-01-31T12:00:02.000000Z",
        "sealed": True,
        "fsync": "always",
    }


def test_info_tells_of_queues(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    disk = RealDisk(tmp_path)
    broker = Broker(disk=disk)
    broker.recover()
    client = broker.connect("127.0.0.1:1")
    broker.feed(client, b"s1 subscribe q1 e1\ns2 subscribe q2 e2\nm1 publish e1 d1\nm2 publish e1 d2\n")
    broker.turn()
    broker.disconnect(client)
    broker.close()
    disk.stop()
    _, lines, _ = run(capfd, "info", str(tmp_path))
    first = next(message.position for message in Reader(tmp_path).messages("earliest"))
    end = Reader(tmp_path).segments()[-1].end
    assert [line.split() for line in lines[-2:]] == [
        ["q1", "2", "0", str(first), str(end)],
        ["q2", "0", "0", str(end), str(end)],
    ]


def test_sizes() -> None:
    assert [size_in_tenths(size) for size in (0, 1023, 1024, 64 << 20, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "64.0 MiB",
        "3.0 TiB",
    ]


def test_the_command_starts(tmp_path: Path) -> None:
    with process("info", cwd=tmp_path, env=os.environ) as told:
        assert told.wait(60) == 1
