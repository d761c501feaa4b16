"""HTTP by TLS: the same certificate as the broker's port, read again as that is, and bounds for those who stall."""

import http.client
import socket
import ssl
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

import mqks.testing
from mqks.web.listening import MOST_GREETED, MOST_SILENT
from tests.certificates import Authority
from tests.running import PATIENCE, Connection
from tests.web.asking import address, inner


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def connected(broker: mqks.testing.Broker, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection(*address(broker), timeout=PATIENCE, context=context)


def ask(connection: http.client.HTTPConnection, path: str) -> tuple[int, bytes]:
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read()


def shown(connection: http.client.HTTPSConnection) -> bytes | None:
    assert isinstance(connection.sock, ssl.SSLSocket)
    return connection.sock.getpeercert(binary_form=True)


def test_page_and_api(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "mqks")
    with mqks.testing.broker(tls_cert=authority.issue(), http=True) as broker:
        with closing(connected(broker, authority.context())) as connection:
            assert ask(connection, "/")[0] == 200
            assert ask(connection, "/healthz") == (200, b'{"status":"ok"}')
            connection.request("POST", "/api/queues/q1/purge", headers={"Origin": "http://evil.example"})
            assert connection.getresponse().status == 403
        assert f"dashboard at {broker.http_url}/" in caplog.text


def test_a_new_certificate_is_for_new_connections_and_streams_go_on(authority: Authority) -> None:
    context = authority.context()
    with (
        mqks.testing.broker(tls_cert=authority.issue(), http=True) as broker,
        closing(connected(broker, context)) as kept,
        closing(connected(broker, context)) as stream,
        closing(Connection(broker.port, context)) as client,
    ):
        assert ask(kept, "/healthz")[0] == 200
        stream.request("GET", "/api/live")
        told = stream.getresponse()
        assert told.readline()
        authority.issue()
        broker.reload()
        with closing(connected(broker, context)) as new:
            assert ask(new, "/healthz")[0] == 200
            assert shown(new) != shown(kept)
        assert ask(kept, "/healthz")[0] == 200
        client.send(b"c1 consume q1 e1\n")
        while b"q1" not in told.readline():
            pass


def test_only_clients_with_a_certificate(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    with mqks.testing.broker(tls_cert=authority.issue(), tls_ca=authority.file, http=True) as broker:
        with closing(connected(broker, authority.context(authority.issue("client.pem", "client.example")))) as known:
            assert ask(known, "/healthz")[0] == 200
        with closing(connected(broker, authority.context())) as unknown, pytest.raises((ssl.SSLError, ConnectionError)):
            ask(unknown, "/healthz")
    assert "TLS failed: peer did not return a certificate" in caplog.text


def test_plain_http_is_refused(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    with mqks.testing.broker(tls_cert=authority.issue(), http=True) as broker:
        plain = http.client.HTTPConnection(*address(broker), timeout=PATIENCE)
        with closing(plain), pytest.raises((http.client.HTTPException, ConnectionError)):
            ask(plain, "/healthz")
        with closing(connected(broker, authority.context())) as connection:
            assert ask(connection, "/healthz")[0] == 200
        assert inner(broker).mistakes.errors == 0
    assert caplog.text.count("it does not speak TLS") == 1


@pytest.mark.parametrize("word", [b"", b"\x16\x03\x01"], ids=["silent", "begun"])
def test_handshakes_that_stall_make_room_at_once(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, word: bytes
) -> None:
    """No time of the broker's passes that would end them."""
    monkeypatch.setattr("mqks.web.listening.HANDSHAKE", 3600.0)
    most = max(MOST_SILENT, MOST_GREETED)
    with mqks.testing.broker(tls_cert=authority.issue(), http=True) as broker, ExitStack() as stack:
        stalled = [
            stack.enter_context(socket.create_connection(address(broker), timeout=PATIENCE)) for _ in range(3 * most)
        ]
        for wire in stalled:
            with suppress(ConnectionError):  # it has made room already
                wire.sendall(word)
        with closing(connected(broker, authority.context())) as connection:
            assert ask(connection, "/healthz")[0] == 200
        for wire in stalled[:most]:
            with suppress(ConnectionResetError):
                assert wire.recv(1) == b""


def test_who_has_most_handshakes_makes_room(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """One who is slow is not cut off by a crowd of another address, though it came first."""
    monkeypatch.setattr("mqks.web.listening.HANDSHAKE", 3600.0)
    with mqks.testing.broker(tls_cert=authority.issue(), http=True) as broker, ExitStack() as stack:

        def stall(host: str) -> socket.socket:
            wire = socket.create_connection(address(broker), timeout=PATIENCE, source_address=(host, 0))
            stack.enter_context(wire)
            with suppress(ConnectionError):
                wire.sendall(b"\x16\x03\x01")
            return wire

        slow = stall("127.0.0.2")
        crowd = [stall("127.0.0.1") for _ in range(2 * MOST_GREETED)]
        with suppress(ConnectionResetError):
            assert crowd[0].recv(1) == b""
        with closing(connected(broker, authority.context())) as connection:
            assert ask(connection, "/healthz")[0] == 200
        slow.setblocking(False)
        with pytest.raises(BlockingIOError):
            slow.recv(1)


def test_a_handshake_has_its_time(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqks.web.listening.HANDSHAKE", 0.05)
    with (
        mqks.testing.broker(tls_cert=authority.issue(), http=True) as broker,
        socket.create_connection(address(broker), timeout=PATIENCE) as stalled,
    ):
        stalled.sendall(b"\x16\x03\x01")
        assert stalled.recv(1) == b""


def test_a_stop_does_not_wait_for_handshakes(authority: Authority) -> None:
    with mqks.testing.broker(tls_cert=authority.issue(), http=True) as broker:
        with closing(connected(broker, authority.context())) as connection:
            stalled = socket.create_connection(address(broker), timeout=PATIENCE)
            assert ask(connection, "/healthz")[0] == 200
        broker.stop()
        assert stalled.recv(1) == b""
        stalled.close()
