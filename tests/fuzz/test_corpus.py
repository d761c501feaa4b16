"""What is kept of hostile input, once more: what takes ways of its own through the code, and what once failed."""

import logging
from collections.abc import Iterator

import pytest

from tests.fuzz import corpus, httpd
from tests.fuzz.minimise import minimise
from tests.fuzz.table import TARGETS

MOST = 300_000  # bytes of all that is kept


@pytest.fixture(scope="module", autouse=True)
def _world() -> Iterator[None]:
    """That of HTTP lives on from input to input, but not into other tests."""
    yield
    httpd.close()


@pytest.mark.parametrize("name", TARGETS)
def test_target(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a client logs may have bytes that no report can carry from one process to another.
    monkeypatch.setattr(logging.getLogger("mqks.client"), "propagate", False)
    for data in corpus.inputs(name):
        try:
            TARGETS[name].function(data)
        except BaseException as failure:
            failure.add_note(f"the input was {data!r}")
            raise


def test_corpora_are_those_of_targets_and_small() -> None:
    files = [*corpus.KEPT.iterdir(), *corpus.REGRESSIONS.iterdir()]
    assert {path.stem for path in files} <= TARGETS.keys()
    assert sum(path.stat().st_size for path in files) < MOST


@pytest.mark.parametrize("data", [b"#", b"# \\ \n\r\0\xff", b" a ", bytes(range(256))])
def test_an_input_comes_back_from_its_line(data: bytes) -> None:
    line = corpus.escape(data)
    assert "\n" not in line
    assert not line.startswith("#")
    assert corpus.unescape(line) == data


def test_what_fails_is_made_shorter() -> None:
    def target(data: bytes) -> None:
        assert b"a" not in data or b"z" not in data

    assert minimise(target, b"123a4567z89") == b"az"
    assert minimise(target, b"nothing") == b"nothing"
