"""The units of systemd in deploy/: systemd itself finds no fault with them, and they say what mqksd understands."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mqks.server.config import Config
from mqks.server.systemd import OWNERS
from tests.running import MQKSD

DEPLOY = Path(__file__).parents[1] / "deploy"
SERVICE = "mqksd.service"
SOCKETS = {"mqks": "mqksd.socket", "http": "mqksd-http.socket"}
EXPOSED = re.compile(r"Overall exposure level for mqksd\.service: ([0-9.]+)")
INSTALLED = "/opt/mqks/bin/mqksd"


def analyze(*arguments: str | Path) -> str:
    """All that systemd-analyze says; without a running systemd it looks at files only."""
    tool = shutil.which("systemd-analyze")
    assert tool, "systemd-analyze is missing: install it with `apt-get install systemd`"
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def unit(name: str) -> configparser.RawConfigParser:
    read = configparser.RawConfigParser(strict=False, delimiters="=")
    read.optionxform = str  # type: ignore[assignment,method-assign]  # as documented: keys keep their case
    read.read(DEPLOY / name)
    return read


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Copies, in which the service starts the mqksd of these tests: systemd checks that it is there."""
    for name in (SERVICE, *SOCKETS.values()):
        text = (DEPLOY / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace(INSTALLED, str(MQKSD)), encoding="utf-8")
    return tmp_path


def test_systemd_finds_no_fault(units: Path) -> None:
    assert analyze("verify", "--man=no", *sorted(units.iterdir())) == ""


def test_systemd_would_find_one(units: Path) -> None:
    """What it does not know it ignores, and says so: that must not pass."""
    service = units / SERVICE
    service.write_text(service.read_text(encoding="utf-8").replace("PrivateTmp=", "PrivateTemp="), encoding="utf-8")
    assert "PrivateTemp" in analyze("verify", "--man=no", service)


def test_little_is_exposed(units: Path) -> None:
    found = EXPOSED.search(analyze("security", "--offline=true", "--no-pager", units / SERVICE))
    assert found
    print(found[0])
    assert float(found[1]) < 2.0, "on systemd's scale from 0 to 10, where 2 is the end of what it calls OK"


@pytest.mark.parametrize("name", SOCKETS)
def test_sockets_have_names_that_mqksd_knows_and_its_usual_ports(name: str) -> None:
    socket = unit(SOCKETS[name])["Socket"]
    config = Config()
    port = {"mqks": config.port, "http": config.http_port}[name]
    assert socket["FileDescriptorName"] == name and OWNERS[name] == name
    assert socket["ListenStream"] == f"127.0.0.1:{port}"


def test_the_page_stops_all_that_could_start_it_again() -> None:
    page = (DEPLOY.parent / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
    for action in ("stop", "start", "reset-failed"):
        found = re.findall(rf"^    sudo systemctl {action} (.*)$", page, re.MULTILINE)
        assert found and all(set(units.split()) == {SERVICE, *SOCKETS.values()} for units in found)


def test_service_starts_mqksd_with_flags_that_it_knows() -> None:
    command, *flags = unit(SERVICE)["Service"]["ExecStart"].split()
    assert command == INSTALLED
    assert Config.load(flags, {}).data == Path("%S/mqks")
