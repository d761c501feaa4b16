"""`python -m build` makes an sdist and, from that alone, a wheel that runs in a venv with what it asks for and no more.

The core is compiled once, without optimising. No index is asked: what the wheel depends on is copied from this venv.
"""

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import mqks
from tests.running import PATIENCE, RunningBroker

ROOT = Path(__file__).parents[1]
NOT_OURS = (".*", "build", "dist", "*.egg-info", "__pycache__", "*.so", "mqks-data", "mqks-lake", "results")
# What lies about in a tree that is worked in. None of it may be given away.
RUBBISH = (
    "mqks-data/journal/00000000000000000000.mqks",
    "src/mqks-data/lock",
    "tests/__pycache__/test_wheel.cpython-311.pyc",
    "src/mqks/core/hub.cpython-311-x86_64-linux-gnu.so",
    "src/mqks/core/hub.c",
    "src/mqks/web/page/app.js~",
    "benchmarks/results/run.json",
    "benchmarks/results/notes.py",
    "build/asan/mqks/core/hub.so",
    ".hypothesis/unicode_data/x",
    ".env",
    "deploy/.env",
    "deploy/server.key",
    "docs/.draft.md",
    "examples/mqks-data/journal/00000000000000000000.mqks",
    "examples/mqks-data/notes.md",
    "examples/mqks-lake/part-0.parquet",
    "tests/.hypothesis/examples/x.txt",
    "tests/cli/.cache/x.py",
    "tests/web/mqks-data/x.txt",
)
COMPILER = '#!/bin/sh\nexec {cc} "$@" -O0 -g0 -w\n'  # the last -O counts


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The folder with a copy of the tree, and what was made of it in `dist`."""
    place = tmp_path_factory.mktemp("built")
    tree = place / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_OURS))
    shutil.copy(ROOT / ".dockerignore", tree)
    if (ROOT / "build" / "cython").is_dir():  # what Cython has made already need not be made for the sdist
        shutil.copytree(ROOT / "build" / "cython", tree / "build" / "cython")
    for name in RUBBISH:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(b"rubbish")
    compiler = place / "cc"
    compiler.write_text(COMPILER.format(cc=os.environ.get("CC", "cc")))
    compiler.chmod(0o755)
    settings = place / "settings.cfg"
    settings.write_text(f"[build_ext]\nparallel = {os.cpu_count()}\n")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(" building sdist and wheel: a minute or so … ", end="", flush=True)
        begun = time.monotonic()
        made = subprocess.run(
            [sys.executable, "-m", "build", "--no-isolation", "--outdir", place / "dist", tree],
            env={
                **os.environ,
                "CC": str(compiler),
                "LDSHARED": f"{compiler} -shared",
                "DIST_EXTRA_CONFIG": str(settings),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        print(f"{time.monotonic() - begun:.0f} s ", end="", flush=True)
    assert made.returncode == 0, made.stdout[-5000:]
    return place


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


@pytest.fixture(scope="module")
def in_sdist(built: Path) -> set[str]:
    with tarfile.open(only(built / "dist", "*.tar.gz")) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


@pytest.fixture(scope="module")
def in_wheel(built: Path) -> set[str]:
    with zipfile.ZipFile(only(built / "dist", "*.whl")) as archive:
        return set(archive.namelist())


def sources(built: Path, *suffixes: str) -> set[str]:
    """Those with these endings, and the files of the dashboard."""
    tree = built / "tree"
    page = tree / "src" / "mqks" / "web" / "page"
    found = (path for path in (tree / "src").rglob("*") if path.suffix in suffixes or path.parent == page)
    return {str(path.relative_to(tree)) for path in found} - set(RUBBISH)


def test_the_sdist_has_all_that_is_needed_to_build_and_test(built: Path, in_sdist: set[str]) -> None:
    wanted = sources(built, ".py", ".pyi", ".pyx", ".pxd", ".typed", ".properties")
    assert {"src/mqks/web/page/index.html", "src/mqks/core/hub.pyx", "src/mqks/py.typed"} < wanted
    wanted |= {"pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt"}
    wanted |= {"benchmarks/contenders/copy.c", ".dockerignore", "tests/dialogues/stats.txt", "examples/README.md"}
    tree = built / "tree"
    for name in ("deploy", "docs", "tests"):
        wanted |= {str(path.relative_to(tree)) for path in (tree / name).iterdir() if path.is_file()} - set(RUBBISH)
    assert wanted - in_sdist == set()


def test_the_sdist_has_nothing_that_only_lies_about(in_sdist: set[str]) -> None:
    assert in_sdist & set(RUBBISH) == set()
    assert [name for name in in_sdist if name.endswith((".so", ".pyc"))] == []


def test_the_wheel_has_the_packages_and_what_belongs_to_them(built: Path, in_wheel: set[str]) -> None:
    wanted = {name.removeprefix("src/") for name in sources(built, ".py", ".pyi", ".typed", ".properties")}
    assert wanted - in_wheel == set()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    compiled = {
        name.removeprefix("src/").removesuffix(".pyx") + suffix
        for name in sources(built, ".pyx")
        if name.endswith(".pyx")
    }
    assert compiled - in_wheel == set()
    assert {name.partition("/")[0] for name in in_wheel} == {
        "mqks",
        "pyspark_mqks",
        "sevx",
        f"mqks-{mqks.__version__}.dist-info",
    }


def needed(requirements: list[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    """What these need to be there, and what that needs."""
    for text in requirements:
        one = Requirement(text)
        if (one.marker is None or one.marker.evaluate({"extra": ""})) and one.name not in found:
            found[one.name] = distribution(one.name)
            needed(found[one.name].requires or [], found)
    return found


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a venv with the wheel in it."""
    venv = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    wheel = only(built / "dist", "*.whl")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(venv / "bin" / "python")]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
    with zipfile.ZipFile(wheel) as archive:
        about = Parser().parsestr(archive.read(f"mqks-{mqks.__version__}.dist-info/METADATA").decode())
    for one in needed(about.get_all("Requires-Dist") or [], {}).values():
        for file in one.files or []:
            if ".." not in file.parts:  # commands are not needed
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), packages / file)
    check = subprocess.run([*pip, "check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout
    return venv / "bin"


@pytest.fixture
def broker(installed: Path, tmp_path: Path) -> Iterator[RunningBroker]:
    process = subprocess.Popen(
        [installed / "mqksd", "--port=0", "--http-port=0"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = RunningBroker(process)
    try:
        running.wait_until_it_listens()
        yield running
    finally:
        running.stop()


def run(command: Path, *words: str, folder: Path, port: int = 0) -> str:
    """What it says; nothing of this process' own Python gets in."""
    environment = {"PATH": os.environ["PATH"], "MQKS_URL": f"mqks://127.0.0.1:{port}"}
    made = subprocess.run([command, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_the_commands_of_the_wheel_are_there(installed: Path, tmp_path: Path) -> None:
    for name in ("mqks", "mqksd"):
        assert run(installed / name, "--version", folder=tmp_path) == f"{name} {mqks.__version__}"
    where = run(installed / "python", "-c", "import mqks.core.hub as h; print(h.__file__)", folder=tmp_path)
    assert Path(where).is_relative_to(installed.parent)


def test_a_message_goes_through_the_broker_of_the_wheel(installed: Path, broker: RunningBroker, tmp_path: Path) -> None:
    ask = installed / "mqks"
    assert run(ask, "rebind", "q1", "e1", folder=tmp_path, port=broker.port) == "q1 is subscribed to e1"
    assert run(ask, "pub", "e1", "hello", "--id", "m1", folder=tmp_path, port=broker.port) == "m1"
    assert run(ask, "sub", "q1", "--count", "1", folder=tmp_path, port=broker.port) == "m1 e1 hello"


def test_the_dashboard_of_the_wheel_is_served(broker: RunningBroker) -> None:
    address = broker.wait_for_log(r"http://127\.0\.0\.1:(\d+)")
    assert address, broker.log
    with socket.create_connection(("127.0.0.1", int(address[1])), PATIENCE) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 200 ") and b"<!doctype html>" in answer.lower()
