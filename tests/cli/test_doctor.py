"""`mqks doctor`: what it finds on a machine that is well, on ones that are not, with a broker and without."""

import errno
import os
import re
import resource
import socket
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest

import mqks
from mqks import testing
from mqks.cli import case as case_module
from mqks.cli import checks, disk_checks, security_checks
from mqks.cli.case import Case
from mqks.cli.checks import CHECKS
from mqks.cli.doctor import findings
from mqks.journal import Segment
from mqks.server.config import Config
from tests.cli.conftest import Cli
from tests.cli.running import on_terminal
from tests.running import PATIENCE

PAGE = Path(__file__).parents[2] / "docs" / "CLI.md"
MiB = 1 << 20
Levels = dict[str, str]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody had configured anything, and no broker of this machine were looked at."""
    for name in [name for name in os.environ if name.startswith("MQKS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MQKS_PORT", "0")
    monkeypatch.setenv("MQKS_HTTP_PORT", "0")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker on a busy machine answers late."""
    for module in (case_module, checks, security_checks):
        monkeypatch.setattr(module, "PATIENCE", PATIENCE)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a broker that has run and is gone."""
    with testing.broker(data=tmp_path / "data") as broker, mqks.Client(broker.url) as mq:
        mq.publish("e1", "d1")
    return tmp_path / "data"


def case(folder: Path, **options: object) -> Case:
    return Case(Config(**{"data": folder, "port": 0, "http_port": 0, **options}))  # type: ignore[arg-type]


def levels(cli: Cli, *arguments: str) -> Levels:
    return {one["check"]: one["level"] for one in cli("doctor", "--json", *arguments).json}


# ── the command ──


def test_each_check_is_on_the_page() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## mqks doctor")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` ", section, re.MULTILINE) == list(CHECKS)


def test_without_a_broker(cli: Cli, data: Path) -> None:
    said = cli("doctor", "--data", str(data), *[name for name in CHECKS if name not in ("memory", "fsync")])
    assert said.code == 0, said.out
    assert [words[1] for words in said.words[:-1]] == [name for name in CHECKS if name not in ("memory", "fsync")]
    assert re.search(r"^ok    folder +\S+/data, free$", said.out, re.MULTILINE)
    assert re.search(r"^ok    journal +.* in 1 segment, from 0 to \d+", said.out, re.MULTILINE)
    assert re.search(r"^ok    broker +none runs; port 0 on 127.0.0.1 is free$", said.out, re.MULTILINE)
    assert re.fullmatch(r"\d+ ok, \d+ warn, 0 bad", said.lines[-1])


def test_with_a_broker(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with testing.broker(data=tmp_path / "data", http=True) as broker:
        assert broker.http_url
        monkeypatch.setenv("MQKS_HTTP_PORT", broker.http_url.rstrip("/").rpartition(":")[2])
        found = {
            one["check"]: one
            for one in cli("--url", broker.url, "doctor", "--json", "--data", str(tmp_path / "data")).json
        }
    assert found["folder"]["text"].endswith(f"in use by process {os.getpid()}")
    assert broker.url in found["broker"]["text"] and found["broker"]["level"] == "ok"
    assert "No queues yet" in found["http"]["text"]


def test_the_folder_is_that_of_the_broker_that_answers(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with testing.broker(data=tmp_path / "data") as broker:
        said = cli("--url", broker.url, "doctor", "folder", "disk", "journal")
        named = cli("--url", broker.url, "doctor", "folder", "disk", "--data", "other")
    assert f"{tmp_path / 'data'}, in use by process {os.getpid()}" in said.lines[0]
    assert said.lines[1].partition(";")[0].endswith(f"for {tmp_path / 'data'}")
    assert "in 1 segment" in said.lines[2]
    assert "other will be made" in named.lines[0]
    assert f"for {tmp_path / 'elsewhere' / 'other'}" in named.lines[1]


@pytest.mark.parametrize(("host", "there"), [("192.0.2.1", True), ("127.0.0.1", False)])
def test_a_folder_that_is_not_the_brokers(host: str, there: bool, tmp_path: Path) -> None:
    """On another machine, or in a container of this one."""
    (tmp_path / "data").mkdir(mode=0o700)
    one = Case(Config(data=tmp_path / "mine"), asked=f"mqks://{host}:25000")
    one.__dict__["stats"] = {"data": str(tmp_path / "data" if there else tmp_path / "not-here")}
    found = disk_checks.folder(one)
    assert one.folder == tmp_path / "mine"
    assert found.level == "warn" and f"{tmp_path / 'mine'} is looked at" in found.text and host in found.text


def test_all_as_json(cli: Cli, data: Path) -> None:
    found = cli("doctor", "--json", "--data", str(data)).json
    assert [one["check"] for one in found] == list(CHECKS)
    for one in found:
        assert one.keys() == {"check", "level", "text", "advice"}
        assert (one["level"] == "ok") == (one["advice"] == ""), one


def test_it_leaves_everything_as_it_is(cli: Cli, data: Path) -> None:
    def look() -> list[tuple[str, int, int]]:
        return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in data.rglob("*"))

    before = look()
    cli("doctor", "--data", str(data))
    cli("doctor", "--data", str(data / "not" / "there"))
    assert look() == before


def test_a_check_that_does_not_exist(cli: Cli) -> None:
    said = cli("doctor", "discs")
    assert said.code == 2
    assert "'discs' is no check: python, " in said.err


def test_a_wrong_url(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("doctor", "--url=http://localhost").code == 2
    monkeypatch.setenv("MQKS_URL", "localhost:25000")
    said = cli("doctor")
    assert (said.code, said.out) == (2, "")
    assert "is no address of a broker" in said.err


def test_colours_on_a_terminal(tmp_path: Path) -> None:
    with on_terminal("doctor", "python", "broker", "--data", str(tmp_path), environment={"MQKS_PORT": "0"}) as terminal:
        terminal.wait_for("\x1b\\[36mok  \x1b\\[0m  python")
        assert terminal.end() == 0


def test_a_wrong_configuration_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQKS_PROT", "1")
    said = cli("doctor", "configuration")
    assert said.code == 1
    assert "did you mean MQKS_PORT?" in said.out


# ── the broker and its ports ──


def test_a_broker_that_was_asked_for_and_does_not_answer(cli: Cli, unused_port: int) -> None:
    said = cli("doctor", "broker", "--url", f"mqks://127.0.0.1:{unused_port}")
    assert said.code == 1
    assert said.out.startswith("bad   broker")


def test_a_port_that_something_else_has(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:  # it listens, and never says a word
        monkeypatch.setenv("MQKS_PORT", str(other.getsockname()[1]))
        monkeypatch.setattr(case_module, "PATIENCE", 0.2)
        said = cli("doctor", "broker")
    assert said.code == 1
    assert "something else has it → choose another --port" in said.out
    assert "`systemctl status mqksd`" in said.out  # it may be systemd, for a broker that cannot start


def test_a_folder_that_is_in_use_by_a_broker_that_does_not_answer(tmp_path: Path) -> None:
    with testing.broker(data=tmp_path):
        found = checks.broker(case(tmp_path))
    assert found.level == "warn" and "--url" in found.advice


@pytest.mark.parametrize(("device", "owner"), [("fd:0a", 4711), ("fd:0b", None)])
def test_who_has_the_folder(device: str, owner: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another disk may have the same number."""
    (tmp_path / "lock").touch()
    number = (tmp_path / "lock").stat().st_ino
    told = {
        "/proc/self/mountinfo": "36 25 253:10 / / rw,relatime shared:1 - ext4 none rw\n",
        "/proc/locks": f"1: FLOCK  ADVISORY  WRITE 4711 {device}:{number} 0 EOF\n",
    }
    monkeypatch.setattr(Path, "read_text", lambda path: told[str(path)])
    assert case(tmp_path).owner == owner


@pytest.mark.parametrize(
    ("stats", "level"),
    [
        ({"version": "9.9.9", "durability": "always", "queues": {}, "journal": {"full": False}}, "warn"),
        ({"version": "0.1.0", "durability": "always", "queues": {}, "journal": {"full": "No space left"}}, "bad"),
    ],
)
def test_what_a_broker_tells_of_itself(stats: dict[str, object], level: str, tmp_path: Path) -> None:
    one = case(tmp_path)
    one.__dict__["stats"] = stats
    assert checks.broker(one).level == level


def test_a_broker_that_answers_and_then_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Silent(nullcontext[None]):
        def __enter__(self) -> Self:  # type: ignore[override]
            return self

        def stats(self) -> None:
            raise mqks.MqksError("no answer in time")

    monkeypatch.setattr("mqks.cli.case.meet", lambda *_: Silent())
    found = dict(findings(case(tmp_path), ["folder", "broker", "http"]))
    assert [one.level for one in found.values()] == ["ok", "ok", "ok"], found
    assert found["broker"].text.startswith("none runs")


@pytest.mark.parametrize(
    ("answers", "level"),
    [
        ({"/healthz": (503, {"status": "the disk failed"})}, "bad"),
        ({"/healthz": (200, {}), "/api/state": (200, {"health": {"level": "trouble", "sentence": "x"}})}, "warn"),
        ({"/healthz": (200, {}), "/api/state": (403, {"error": "x"})}, "warn"),
        ({"/healthz": (403, {"error": "x"})}, "warn"),  # by a name that it was not told
        ({}, "warn"),
    ],
)
def test_what_http_tells(
    answers: dict[str, tuple[int, object]], level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*asked: object) -> tuple[int, object]:
        if asked[-1] not in answers:
            raise ConnectionRefusedError
        return answers[str(asked[-1])]

    monkeypatch.setattr(checks, "ask", ask)
    one = case(tmp_path)
    one.__dict__["stats"] = {"version": "0.1.0"}
    found = checks.http_side(one)
    assert found.level == level and "None" not in found.text


@pytest.mark.parametrize(
    ("options", "asked", "host"),
    [
        ({"host": "192.0.2.2"}, None, "127.0.0.1"),
        ({"http_host": "0.0.0.0"}, None, "127.0.0.1"),
        ({"http_host": "::1"}, None, "::1"),
        ({}, "mqks://192.0.2.2:25000", "192.0.2.2"),
    ],
)
def test_where_http_is_asked(options: dict[str, str], asked: str | None, host: str) -> None:
    assert Case(Config(**options), asked=asked).http_host == host  # type: ignore[arg-type]


def test_http_of_a_broker_that_was_asked_for_and_does_not_answer(cli: Cli, unused_port: int) -> None:
    said = cli("doctor", "http", "--url", f"mqks://127.0.0.1:{unused_port}")
    assert said.code == 1
    assert "a broker runs" not in said.out and "none answers at http://127.0.0.1:0/ → see `broker`" in said.out


def test_http_of_another_broker(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with testing.broker() as asked, testing.broker(http=True) as other:
        assert other.http_url
        monkeypatch.setenv("MQKS_HTTP_PORT", other.http_url.rstrip("/").rpartition(":")[2])
        (found,) = cli("doctor", "http", "--json", "--url", asked.url).json
    assert found["level"] == "warn"
    assert f"says that its broker is at 127.0.0.1:{other.port}: it may not be that of {asked.url}" in found["text"]
    assert "MQKS_HTTP_PORT" in found["advice"]


def test_no_http(tmp_path: Path) -> None:
    assert checks.http_side(case(tmp_path, http=False)).text == "off, by this shell's settings: --no-http"


# ── the system ──


@pytest.mark.parametrize(("most", "level"), [(300, "bad"), (4096, "warn"), (20_000, "ok"), (-1, "ok")])
def test_open_files(most: int, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = resource.RLIM_INFINITY if most < 0 else most
    monkeypatch.setattr(resource, "getrlimit", lambda _: (most, most))
    assert checks.files(case(tmp_path)).level == level


def test_memory(tmp_path: Path) -> None:
    assert checks.memory(case(tmp_path, max_memory=4 * MiB)).level == "ok"
    assert checks.memory(case(tmp_path, max_memory=1 << 50)).level == "bad"


@pytest.mark.parametrize(("now", "level"), [("128\n", "warn"), ("4096\n", "ok")])
def test_kernel(now: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: now)
    assert checks.kernel(case(tmp_path)).level == level


def test_a_clock_that_is_behind_the_journal(tmp_path: Path) -> None:
    one = case(tmp_path)
    later = datetime.now(UTC) + timedelta(hours=1)
    one.__dict__["segments"] = [Segment(0, 100, later, later, True, "always")]
    assert checks.clock(one).level == "warn"


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mqks.pipeline.session import CannotStart

    def check() -> str:
        raise CannotStart("install a JRE")

    monkeypatch.setattr("mqks.pipeline.session.check", check)
    monkeypatch.setattr(checks, "find_spec", lambda _: object())
    assert checks.java(case(tmp_path)) == ("warn", "Spark is installed, but cannot start", "install a JRE")
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    assert checks.java(case(tmp_path)).level == "ok"


# ── the disk ──


def make_file(path: Path) -> None:
    path.write_bytes(b"")


def open_to_all(path: Path) -> None:
    path.mkdir(mode=0o755)


@pytest.mark.parametrize(
    ("make", "level", "text"),
    [
        (lambda _: None, "ok", "will be made"),
        (lambda path: path.mkdir(mode=0o700), "ok", "free"),
        (open_to_all, "warn", "open to other users"),
        (make_file, "bad", "is no folder"),
    ],
)
def test_folders(make: Callable[[Path], None], level: str, text: str, tmp_path: Path) -> None:
    make(tmp_path / "data")
    found = disk_checks.folder(case(tmp_path / "data"))
    assert found.level == level and text in found.text


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_may_not_be_written(there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert disk_checks.folder(case(tmp_path if there else tmp_path / "data")).level == "bad"


@pytest.mark.parametrize(("kind", "level"), [("ext4", "ok"), ("tmpfs", "warn"), ("overlay", "warn"), ("nfs4", "warn")])
def test_file_systems(kind: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "36 25 0:32 / {} rw,relatime shared:1 - {} none rw\n"
    told = line.format("/", "xfs") + line.format(str(tmp_path).replace(" ", "\\040"), kind) + line.format("/no", "x")
    monkeypatch.setattr(Path, "read_text", lambda _: told)
    found = disk_checks.filesystem(case(tmp_path / "data"))
    assert found.level == level and kind in found.text


@pytest.mark.parametrize(
    ("free", "grown", "level"),
    [
        (100, 0, "bad"),  # two segments have 128 MiB
        (4000, 0, "warn"),
        (50_000, 0, "ok"),
        (50_000, 10_000, "ok"),  # quick, but it stops before the disk is full
        (15_000, 1_500, "warn"),
    ],
)
def test_disks(free: int, grown: int, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In MiB, of 100,000; the journal may have a fifth of it. It has grown by so much in the last hour."""
    monkeypatch.setattr(
        os, "statvfs", lambda _: SimpleNamespace(f_bavail=free, f_blocks=100_000, f_frsize=MiB), raising=True
    )
    one = case(tmp_path)
    now = datetime.now(UTC)
    one.__dict__["segments"] = [Segment(0, grown * MiB, now - timedelta(hours=1), now, False, "always")] * bool(grown)
    found = disk_checks.disk(one)
    assert found.level == level
    assert ("a day" in found.text) == bool(grown)


def test_a_disk_with_less_than_is_to_stay_free(tmp_path: Path) -> None:
    short = disk_checks.disk(case(tmp_path, min_free_disk=1 << 60))
    assert short.level == "bad" and "less than --min-free-disk" in short.text


@pytest.mark.parametrize(("seconds", "level"), [(0.0005, "ok"), (0.03, "warn"), (1.0, "bad")])
def test_syncs(seconds: float, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_checks, "sync_times", lambda _: [seconds] * 10)
    assert disk_checks.fsync(case(tmp_path)).level == level


def test_a_disk_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    found = disk_checks.fsync(case(tmp_path))
    assert found.level == "bad" and "No space left" in found.text


def test_real_syncs(tmp_path: Path) -> None:
    assert len(disk_checks.sync_times(tmp_path)) >= 2
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_journal_and_what_lies_aside(data: Path) -> None:
    (segment,) = (data / "journal").iterdir()
    content = bytearray(segment.read_bytes())
    (data / "aside").mkdir(exist_ok=True)
    (data / "aside" / "x.cut").write_bytes(b"x")
    assert disk_checks.journal(case(data)).level == "warn"
    content[60] ^= 1
    segment.write_bytes(content)
    assert disk_checks.journal(case(data)).level == "bad"
