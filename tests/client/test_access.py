"""What a client shows and trusts, and its first words: where they come from, and what is never shown. Without I/O."""

import logging
import pickle
from pathlib import Path

import pytest

from mqks.client.access import ENVIRONMENT, Access
from mqks.client.address import find_address
from mqks.client.errors import AuthRefused
from mqks.client.hello import LONGEST, Hello, TurnedAway
from mqks.client.options import Options

TOKEN = "worker.c2VjcmV0"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT.values():
        monkeypatch.delenv(name, raising=False)


# ── where it comes from ──


def test_what_is_not_given_is_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, variable in ENVIRONMENT.items():
        monkeypatch.setenv(variable, f" {name}.1 \n")
    assert Access().found() == Access("token.1", "ca.1", "cert.1", "key.1")
    assert Access("token.2", ca=Path("ca.2")).found() == Access("token.2", Path("ca.2"), "cert.1", "key.1")
    assert Options().access.token == "token.1"
    assert Options(token="token.3").access.token == "token.3"


def test_a_certificate_that_is_given_has_not_the_key_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQKS_CLIENT_CERT", "cert.1")
    monkeypatch.setenv("MQKS_CLIENT_KEY", "key.1")
    assert Access(cert="cert.2").found() == Access(cert="cert.2")


def test_what_is_empty_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ENVIRONMENT.values():
        monkeypatch.setenv(variable, " ")
    assert Access().found() == Access()


@pytest.mark.parametrize("token", ["two words", "a\nb", "a\tb", "tökén", "a\0b", ""])
def test_what_is_no_token(token: str) -> None:
    with pytest.raises(ValueError, match="a token is one word") as refused:
        Options(token=token).access  # noqa: B018
    assert not token or token not in str(refused.value)


def test_a_token_may_come_from_a_file_with_the_end_of_its_line() -> None:
    assert Options(token=f"{TOKEN}\n").access.token == TOKEN


def test_what_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQKS_CA", "ca.1")
    assert Access(TOKEN, cert=Path("c.pem")).found().given == {"token": TOKEN, "ca": "ca.1", "cert": "c.pem"}


# ── what is never shown ──


def test_a_token_is_not_shown() -> None:
    for shown in (repr(Access(TOKEN)), repr(Options(token=TOKEN)), str(AuthRefused(Access(TOKEN).who, "e1"))):
        assert TOKEN not in shown
        assert "c2VjcmV0" not in shown
    assert "worker.…" in Access(TOKEN).who
    assert "c2VjcmV0" not in Access("c2VjcmV0").who


def test_a_refusal_can_be_pickled() -> None:
    """As Spark does with what a task raises."""
    refused = AuthRefused(Access(TOKEN).who, "e1")
    again = pickle.loads(pickle.dumps(refused))
    assert (type(again), str(again), again.error_id) == (AuthRefused, str(refused), "e1")


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("mqks://broker.example", True),
        ("mqks://10.0.0.1", True),
        ("mqks://[2001:db8::1]", True),
        ("mqks://localhost", False),
        ("mqks://127.0.0.7", False),
        ("mqks://[::1]", False),
        ("mqkss://broker.example", False),
    ],
)
def test_a_token_that_others_could_read_is_warned_of(url: str, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    Access(TOKEN).warn(find_address(url))
    Access().warn(find_address(url))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * warned
    assert TOKEN not in caplog.text


# ── the first words ──


def test_who_has_no_token_pings() -> None:
    assert Hello(Access()).line == b"hello ping\n"
    assert Hello(Access(TOKEN)).line == b"hello auth worker.c2VjcmV0\n"


def test_an_answer_comes_in_any_pieces() -> None:
    answer = b"hello ok \nmore"
    assert Hello(Access(TOKEN)).heard(answer) == b"more"
    for cut in range(1, answer.index(b"\n") + 1):
        hello = Hello(Access(TOKEN))
        assert hello.heard(answer[:cut]) is None
        assert hello.heard(answer[cut:]) == b"more"


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (b"hello error e1\n", AuthRefused, "worker.….*error e1; its log says why"),
        (b"- error e1\n", TurnedAway, r"turns us away \(no TLS.*error e1; its log says why"),
        (b"HTTP/1.1 400 Bad Request\r\n", ConnectionRefusedError, "HTTP/1.1 400"),
        (b"x" * LONGEST, ConnectionRefusedError, "answers 'x"),
        (b"\n", ConnectionResetError, "instead of an answer"),
    ],
)
def test_who_is_not_let_in(answer: bytes, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        Hello(Access(TOKEN)).heard(answer)


@pytest.mark.parametrize("begun", [b"", b"hello ok"])
def test_an_end_in_place_of_an_answer(begun: bytes) -> None:
    hello = Hello(Access(TOKEN))
    if begun:
        assert hello.heard(begun) is None
    with pytest.raises(ConnectionError):
        hello.heard(b"")
