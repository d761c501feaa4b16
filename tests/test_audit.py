"""What `python -m tests.audit` makes of pip-audit's report."""

from pathlib import Path

import pytest

from tests import audit
from tests.audit import judge

GOOD = {"name": "good", "version": "1.0", "vulns": []}
BAD = {"name": "bad", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
UNMENDED = {"name": "worse", "version": "1.0", "vulns": [{"id": "PYSEC-2", "fix_versions": []}]}
UNKNOWN = {"name": "unknown", "skip_reason": "Dependency not found on PyPI"}
NOT_ASKED = "NOT AUDITED: 1 of 2 pinned packages, of which the index knows no advisories: unknown"


def test_a_finding_is_an_error() -> None:
    said, good = judge({"dependencies": [GOOD, BAD, UNMENDED]}, 3)
    assert not good
    assert said[:2] == ["bad 1.0: PYSEC-1, mended in 1.1", "worse 1.0: PYSEC-2, mended in none"]


def test_a_finding_is_an_error_where_others_could_not_be_asked_about() -> None:
    assert judge({"dependencies": [BAD, UNKNOWN]}, 2) == (["bad 1.0: PYSEC-1, mended in 1.1", NOT_ASKED], False)


def test_a_finding_that_is_accepted_is_none() -> None:
    assert judge({"dependencies": [BAD]}, 1, {"PYSEC-1": "we do not call it"})[1]


def test_all_is_well() -> None:
    assert judge({"dependencies": [GOOD]}, 1) == (["1 pinned packages were audited"], True)


def test_how_many_could_not_be_asked_about_is_said_in_one_line() -> None:
    assert judge({"dependencies": [GOOD, UNKNOWN]}, 2) == ([NOT_ASKED], True)
    said, good = judge({"dependencies": [UNKNOWN] * 92}, 92)
    assert good
    assert len(said) == 1
    assert said[0].startswith("NOT AUDITED: 92 of 92 ")


def test_it_works_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")  # where nobody listens
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    pinned = tmp_path / "constraints.txt"
    pinned.write_text("# pinned\nmqks-nothing==1.0\nmqks-nobody==2.0\n")
    assert audit.main(pinned) == 0
    said = capsys.readouterr().out
    assert said.startswith("NOT AUDITED: 2 of 2 pinned packages: ")
    assert said.count("\n") == 1
