"""Tokens: both clients say who they are to a real broker that wants to know, and what they do when it says no."""

import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import mqks
import sevx
from mqks.server.tokens import Hash, new_token
from mqks.testing import Broker, broker
from tests.certificates import Authority
from tests.client.conftest import Open
from tests.client.test_life import Ups
from tests.running import PATIENCE

ALL = 'publish = ["**"]\nconsume = { queues = ["**"], events = ["**"] }\nmanage = ["**"]\nadmin = true\n'


class Tokens:
    """An auth file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "auth.toml"
        self._entries: dict[str, str] = {}
        self.worker = self.new("worker")

    def new(self, name: str, rights: str = ALL) -> str:
        token = new_token(name)
        self._entries[name] = f'[tokens.{name}]\nhash = "{Hash.of(token)}"\n{rights}'
        self._write()
        return token

    def revoke(self, name: str) -> str:
        entry = self._entries.pop(name)
        self._write()
        return entry

    def restore(self, name: str, entry: str) -> None:
        self._entries[name] = entry
        self._write()

    def _write(self) -> None:
        self.path.write_text("\n".join(self._entries.values()))
        self.path.chmod(0o600)


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path)


@pytest.fixture
def token(tokens: Tokens) -> str:
    return tokens.worker


@pytest.fixture
def guarded(tokens: Tokens) -> Iterator[Broker]:
    with broker(auth_file=tokens.path) as made:
        yield made


@pytest.fixture
def both(tokens: Tokens, tmp_path: Path) -> Iterator[Broker]:
    """A broker with TLS, too."""
    with broker(auth_file=tokens.path, tls_cert=Authority(tmp_path).issue()) as made:
        yield made


def test_a_known_token(guarded: Broker, token: str, open_mq: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    mq = open_mq(guarded, token=token)
    with_consumer = mq.consume("q", ["e"])
    with_consumer.ready()
    mq.publish("e", "1", confirm=True)
    assert with_consumer.get().data == "1"
    monkeypatch.setenv("MQKS_TOKEN", token)
    assert open_mq(guarded).ping("hello") == "hello"


def test_a_known_token_over_tls(both: Broker, token: str, tmp_path: Path, open_mq: Open) -> None:
    assert open_mq(both, token=token, ca=tmp_path / "ca.pem").ping("hello") == "hello"


def test_a_broker_that_does_not_ask(running: Broker, open_mq: Open) -> None:
    assert open_mq(running, token="any.token").ping("hello") == "hello"


def test_a_wrong_token_is_told_at_once(guarded: Broker, open_mq: Open) -> None:
    with pytest.raises(mqks.AuthRefused, match=r"the token worker\.….*its log says why") as refused:
        open_mq(guarded, token="worker.wrong", connect_timeout=10 * PATIENCE)
    assert isinstance(refused.value, mqks.Refused)
    assert "wrong" not in str(refused.value)


@pytest.mark.parametrize("kind", ["guarded", "both"])
def test_no_token_is_told_at_once(kind: str, request: pytest.FixtureRequest, tmp_path: Path, open_mq: Open) -> None:
    with pytest.raises(mqks.AuthRefused, match=r"has no token \(give one by token=…, --token-file or MQKS_TOKEN"):
        open_mq(request.getfixturevalue(kind), ca=tmp_path / "ca.pem", connect_timeout=10 * PATIENCE)


def test_what_a_token_may_not_do_is_refused(guarded: Broker, tokens: Tokens, open_mq: Open) -> None:
    narrow = tokens.new("narrow", 'publish = ["order.*"]\n')
    guarded.reload()
    mq = open_mq(guarded, token=narrow)
    mq.publish("order.new", "1", confirm=True)
    with pytest.raises(mqks.Refused, match="publish"):
        mq.publish("user.new", "1", confirm=True)
    with pytest.raises(mqks.Refused):
        mq.consume("q", ["order.new"]).ready()


def test_a_token_that_is_revoked_and_given_back(
    guarded: Broker, token: str, tokens: Tokens, open_mq: Open, caplog: pytest.LogCaptureFixture,
    attempts: threading.Semaphore,
) -> None:  # fmt: skip
    """The connection goes, the refusal is said once and tried on, and all comes back as it was."""
    ups = Ups()
    mq = open_mq(guarded, token=token, **ups.options)
    consumer = mq.consume("q", ["e"])
    consumer.ready()
    entry = tokens.revoke("worker")
    guarded.reload()
    assert ups.down.wait(PATIENCE)
    mq.publish("e", "waits")
    for _ in range(3):
        assert attempts.acquire(timeout=PATIENCE)
    tokens.restore("worker", entry)
    guarded.reload()
    assert ups.up.wait(PATIENCE)
    assert consumer.get().data == "waits"
    refusals = [record for record in caplog.records if "does not let in" in record.getMessage()]
    assert [record.levelno for record in refusals] == [logging.ERROR]
    assert token not in caplog.text
    assert token.partition(".")[2] not in caplog.text


def test_no_log_and_no_figure_has_the_token(
    guarded: Broker, token: str, open_mq: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    mq = open_mq(guarded, token=token)
    secret = token.partition(".")[2]
    assert secret not in f"{mq!r} {mq.stats()} {caplog.text}"


def test_close_does_not_wait_for_an_answer_that_does_not_come(open_mq: Open) -> None:
    """A broker that goes, and comes back as somebody who says nothing."""
    ups = Ups()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        answered = threading.Thread(target=_answer, args=(listener,))
        answered.start()
        silent = Silent(f"mqks://127.0.0.1:{listener.getsockname()[1]}")
        mq = open_mq(silent, token="a.token", **ups.options)
        assert ups.down.wait(PATIENCE)
        mute = listener.accept()[0]
        assert mute.recv(1000).split()[1:] == [b"auth", b"a.token"]
        closing = threading.Thread(target=lambda: mq.close(0))
        closing.start()
        closing.join(PATIENCE)
        assert not closing.is_alive()
        answered.join()
        mute.close()


class Silent:
    """As much of a broker as there is to know of one."""

    def __init__(self, url: str) -> None:
        self.url = url


def _answer(listener: socket.socket) -> None:
    connection = listener.accept()[0]
    id, *request = connection.recv(1000).split()
    assert request == [b"auth", b"a.token"]
    connection.sendall(b"%s ok \n" % id)
    connection.recv(1000)
    connection.close()


def test_sevx_says_who_it_is(guarded: Broker, token: str) -> None:
    got: list[str] = []
    come = threading.Event()
    sevx.connect(guarded.url, token=token)
    try:

        @sevx.on({"event": "e"}, wait=True)
        def on_event(event: sevx.Event) -> None:
            got.append(event.content.data)
            come.set()

        sevx.send({"event": "e", "data": "1"}, wait=True)
        assert come.wait(PATIENCE)
        assert got == ["1"]
    finally:
        sevx.disconnect()
