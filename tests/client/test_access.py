"""What a client shows and trusts, and its first words: where they come from, and what is never shown. Without I/O."""

import logging
import pickle
import re
from pathlib import Path

import pytest

from mqks.client.access import ENVIRONMENT, Access
from mqks.client.address import find_address
from mqks.client.errors import AuthRefused
from mqks.client.hello import LONGEST, Hello, NotABroker, TurnedAway
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


def said_to(hello: Hello, answer: bytes) -> bytes:
    """The answer with the id of the request."""
    return answer.replace(b"{id}", hello.line.split()[0])


def test_the_first_request_has_a_new_dtid_and_data() -> None:
    """As the original server wants it: three words."""
    assert re.fullmatch(rb"[0-9]{20}[0-9a-zA-Z]{4} ping hello\n", Hello(Access()).line)
    assert re.fullmatch(rb"[0-9]{20}[0-9a-zA-Z]{4} auth worker\.c2VjcmV0\n", Hello(Access(TOKEN)).line)
    assert Hello(Access()).line != Hello(Access()).line


def test_an_answer_comes_in_any_pieces() -> None:
    hello = Hello(Access(TOKEN))
    answer = said_to(hello, b"{id} ok hello\nmore")
    assert hello.heard(answer) == b"more"
    for cut in range(1, answer.index(b"\n") + 1):
        hello = Hello(Access(TOKEN))
        answer = said_to(hello, b"{id} ok hello\nmore")
        assert hello.heard(answer[:cut]) is None
        assert hello.heard(answer[cut:]) == b"more"


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (b"{id} error e1\n", AuthRefused, "worker.….*error e1; its log says why"),
        (b"- error e1\n", TurnedAway, r"turns us away \(no TLS.*error e1; its log says why"),
        (b"HTTP/1.1 400 Bad Request\r\n", NotABroker, "it speaks HTTP and answers 'HTTP/1.1 400 Bad Request'"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", NotABroker, "answers 'SSH-2.0-OpenSSH_9.9'"),
        (b"another ok hello\n", NotABroker, "answers 'another ok hello'"),
        (b"x" * LONGEST, NotABroker, "answers 'x"),
        (b"\n", ConnectionResetError, "instead of an answer"),
    ],
)
def test_who_is_not_let_in(answer: bytes, error: type[Exception], why: str) -> None:
    hello = Hello(Access(TOKEN))
    with pytest.raises(error, match=why):
        hello.heard(said_to(hello, answer))


@pytest.mark.parametrize("begun", [b"", b"{id} ok"])
def test_an_end_in_place_of_an_answer(begun: bytes) -> None:
    hello = Hello(Access(TOKEN))
    if begun:
        assert hello.heard(said_to(hello, begun)) is None
    with pytest.raises(ConnectionError):
        hello.heard(b"")
