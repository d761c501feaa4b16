"""mqkss://: both clients over TLS, with a real broker, from whom they trust to what they do when it breaks."""

import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

import mqks
from mqks.client.access import Access
from mqks.client.address import find_address
from mqks.client.blocking_driver import CHUNK
from mqks.client.hello import explained
from mqks.client.options import unreachable
from mqks.client.reaching import connected
from mqks.client.sealed import PIECE, Sealed
from mqks.client.wire import Ids, Lines
from mqks.testing import Broker, broker
from tests.certificates import Authority
from tests.client.conftest import Open
from tests.client.test_life import Ups
from tests.running import PATIENCE

MiB = 1 << 20


def folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("another"))


@pytest.fixture
def sealed(ours: Authority) -> Iterator[Broker]:
    with broker(tls_cert=ours.issue(), max_line="16M") as made:
        yield made


# ── whom they trust ──


def test_the_address_says_that_it_is_tls(sealed: Broker, ours: Authority, open_mq: Open) -> None:
    assert sealed.url.startswith("mqkss://")
    mq = open_mq(sealed, ca=ours.file)
    assert mq.ping("hello") == "hello"
    assert f"{sealed.url}, connected" in repr(mq)


def test_an_authority_may_be_named_by_the_environment(
    sealed: Broker, ours: Authority, open_mq: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQKS_CA", str(ours.file))
    monkeypatch.setenv("MQKS_URL", sealed.url)
    assert open_mq(sealed).ping("hello") == "hello"
    with mqks.Client() as mq:
        assert mq.ping("hello") == "hello"


@pytest.mark.parametrize("named", [True, False])
def test_another_authority_is_not_trusted(sealed: Broker, another: Authority, open_mq: Open, named: bool) -> None:
    """At once, with OpenSSL's reason and what to do; also where it is only the system that trusts."""
    with pytest.raises(mqks.TlsFailed, match=r"cannot trust .*certificate.*ca=…, --ca or MQKS_CA"):
        open_mq(sealed, connect_timeout=10 * PATIENCE, **({"ca": another.file} if named else {}))


def test_a_certificate_for_another_host(ours: Authority, open_mq: Open) -> None:
    cert, why = ours.issue("elsewhere.pem", "elsewhere.example"), "127.0.0.1.*by a name that is in its certificate"
    with broker(tls_cert=cert) as elsewhere, pytest.raises(mqks.TlsFailed, match=why):
        open_mq(elsewhere, ca=ours.file)


def test_a_certificate_that_has_ended(ours: Authority, open_mq: Open) -> None:
    ended = ours.issue("ended.pem", ends=datetime(2020, 1, 1, tzinfo=UTC))
    with broker(tls_cert=ended) as old, pytest.raises(mqks.TlsFailed, match="has expired; renew its certificate"):
        open_mq(old, ca=ours.file)


def test_who_does_not_want_to_know_is_warned(sealed: Broker, open_mq: Open, caplog: pytest.LogCaptureFixture) -> None:
    assert open_mq(sealed, verify=False).ping("hello") == "hello"
    (said,) = [record.getMessage() for record in caplog.records if record.name == "mqks.client"]
    assert said == f"{sealed.url}: its certificate is not checked (verify=False), so it may be anybody"


def test_one_who_closes_amid_the_handshake_may_be_full() -> None:
    """A broker has no words before TLS is spoken, and OpenSSL's own tell nothing."""
    address = find_address("mqkss://localhost:1")
    told = unreachable(address, explained(address, ssl.SSLEOFError(8, "EOF occurred in violation of protocol")))
    assert "it closed the connection instead of a handshake of TLS, as one does that is full" in str(told)
    assert "violation" not in str(told)


def test_a_broker_without_tls(running: Broker, ours: Authority, open_mq: Open) -> None:
    running.url = running.url.replace("mqks:", "mqkss:")
    with pytest.raises(mqks.TlsFailed, match="does not speak TLS; without it the address is mqks://"):
        open_mq(running, ca=ours.file)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ca": "nowhere.pem"}, "ca nowhere.pem cannot be used: No such file"),
        ({"ca": __file__}, "ca .*test_tls.py cannot be used: it has no certificate in PEM$"),
        ({"verify": False, "cert": "nowhere.pem"}, "cert nowhere.pem cannot be used: No such file"),
        ({"verify": False, "cert": __file__}, "cert .*test_tls.py cannot be used: it has no certificate with its"),
    ],
)
def test_files_that_will_not_do(sealed: Broker, open_mq: Open, options: dict[str, Any], why: str) -> None:
    with pytest.raises(mqks.TlsFailed, match=why):
        open_mq(sealed, **options)


def test_a_key_without_a_certificate(sealed: Broker, ours: Authority, open_mq: Open) -> None:
    with pytest.raises(ValueError, match="give cert, too"):
        open_mq(sealed, key=ours.file)


def test_a_locked_key_is_not_asked_for(sealed: Broker, tmp_path: Path, open_mq: Open) -> None:
    """At a terminal, where nobody might be."""
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    cert, _ = Authority(tmp_path).issue_apart("client")
    (tmp_path / "locked.pem").write_bytes(key + cert.read_bytes())
    with pytest.raises(mqks.TlsFailed, match=r"locked\.pem cannot be used"):
        open_mq(sealed, verify=False, cert=tmp_path / "locked.pem")


# ── a certificate of the client's own ──


@pytest.fixture
def wary(ours: Authority) -> Iterator[Broker]:
    """A broker that wants to see a certificate."""
    with broker(tls_cert=ours.issue(), tls_ca=ours.file) as made:
        yield made


def test_a_client_shows_its_certificate(
    wary: Broker, ours: Authority, open_mq: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = ours.issue_apart("client")
    assert open_mq(wary, ca=ours.file, cert=cert, key=key).ping("hello") == "hello"
    assert open_mq(wary, ca=ours.file, cert=ours.issue("client.pem", "client")).ping("hello") == "hello"
    monkeypatch.setenv("MQKS_CLIENT_CERT", str(cert))
    monkeypatch.setenv("MQKS_CLIENT_KEY", str(key))
    assert open_mq(wary, ca=ours.file).ping("hello") == "hello"


def test_a_client_without_a_certificate(wary: Broker, ours: Authority, another: Authority, open_mq: Open) -> None:
    """The broker says so only after the handshake, and yet it is told at once."""
    for options in ({}, {"cert": another.issue("client.pem", "client")}):
        with pytest.raises(mqks.TlsFailed, match=r"refuses TLS: .*does it want another certificate \(cert and key\)"):
            open_mq(wary, ca=ours.file, **options)


# ── bytes ──


@pytest.mark.parametrize("size", [1, PIECE, 8 * MiB])
def test_messages_of_any_size_go_and_come(sealed: Broker, ours: Authority, open_mq: Open, size: int) -> None:
    mq = open_mq(sealed, ca=ours.file)
    consumer = mq.consume("q", ["e"])
    consumer.ready()
    data = ("0123456789abcde" * (size // 15 + 1))[:size]
    for number in range(3):
        mq.publish("e", f"{number}{data}", confirm=number == 2)
    assert [consumer.get().data == f"{number}{data}" for number in range(3)] == [True] * 3


def test_much_at_once_comes_whole_and_in_order(sealed: Broker, ours: Authority, open_mq: Open) -> None:
    """Far more than the kernel takes at a time, in both directions."""
    mq = open_mq(sealed, ca=ours.file)
    consumer = mq.consume("q", ["e"])
    consumer.ready()
    mq.publish_many([("e", f"{number} {'x' * 50_000}") for number in range(400)], confirm=False)
    for number in range(400):
        assert consumer.get().data.startswith(f"{number} ")


def test_many_threads_publish(sealed: Broker, ours: Authority) -> None:
    threads, each = 8, 2000
    with mqks.connect(sealed.url, ca=ours.file) as mq, mq.consume("q", ["e"]) as consumer:

        def publish(name: int) -> None:
            for number in range(each):
                mq.publish("e", f"{name} {number} {'x' * (number % 500)}", confirm=number % 500 == 0)

        running = [threading.Thread(target=publish, args=(name,)) for name in range(threads)]
        for thread in running:
            thread.start()
        seen: dict[str, int] = {}
        for _ in range(threads * each):
            name, number, _ = next(consumer).data.split(" ")
            assert seen.get(name, -1) + 1 == int(number)
            seen[name] = int(number)
        for thread in running:
            thread.join()
        assert len(seen) == threads


class Records:
    """The broker's end of a connection, which gives records as it is told, and perhaps reads nothing."""

    def __init__(self, ours: Authority) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(ours.issue())
        self._ca = ours.file

    def __enter__(self) -> tuple[ssl.SSLSocket, socket.socket]:
        """This end, and the client's: a connection that stands."""
        accepted: Future[ssl.SSLSocket] = Future()

        def accept() -> None:
            end = self._context.wrap_socket(self._listener.accept()[0], server_side=True)
            end.sendall(b"%s ok hello\n" % end.recv(1000).split()[0])
            accepted.set_result(end)

        threading.Thread(target=accept, daemon=True).start()
        address = find_address(f"mqkss://127.0.0.1:{self._listener.getsockname()[1]}")
        self._client = connected(address, Access(ca=self._ca))
        self._client.setblocking(False)
        self._broker = accepted.result(PATIENCE)
        return self._broker, self._client

    def __exit__(self, *_: object) -> None:
        for each in (self._client, self._broker, self._listener):
            each.close()


def wait_for(connection: socket.socket) -> None:
    assert select.select([connection], [], [], PATIENCE)[0]


def test_what_is_decrypted_already_is_not_left_behind(ours: Authority) -> None:
    """No selector would tell of it: many records in the kernel, a read that takes less than one of them."""
    with Records(ours) as (end, connection):
        mine = Sealed(connection)
        assert mine.recv(CHUNK) is None
        end.sendall(b"x" * 100_000)
        taken = 0
        while taken < 100_000:
            wait_for(connection)
            taken += len(mine.recv(10) or b"")
            assert isinstance(connection, ssl.SSLSocket)
            assert not connection.pending()
        assert mine.recv(10) is None
        end.close()
        wait_for(connection)
        assert mine.recv(10) == b""


def test_what_is_not_taken_is_given_again_as_it_was(ours: Authority) -> None:
    """OpenSSL may have sent a part of a piece: what comes meanwhile waits for its end."""
    with Records(ours) as (end, connection):
        mine, lines = Sealed(connection), Lines(Ids())
        sent = b""
        while not sent or mine.send(lines):
            line = f"{len(sent)} {'x' * 50_000}\n"
            lines.put(line)
            sent += line.encode()
        lines.put("last\n")
        sent += b"last\n"
        got = b""
        while len(got) < len(sent):
            got += end.recv(1 << 16)
            mine.send(lines)
        assert got == sent
        assert lines.size == 0


def test_a_broken_connection_is_found_by_who_reads(ours: Authority) -> None:
    with Records(ours) as (end, connection):
        mine, lines = Sealed(connection), Lines(Ids())
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.close()
        wait_for(connection)
        lines.put("a line\n")
        assert not mine.send(lines)
        assert mine.recv(10) == b""


# ── when it breaks ──


def test_consumers_come_back_over_tls(tmp_path: Path, ours: Authority, open_mq: Open) -> None:
    ups = Ups()
    with broker(data=tmp_path / "data", tls_cert=ours.issue()) as durable:
        mq = open_mq(durable, ca=ours.file, **ups.options)
        consumer = mq.consume("q", ["e"], manual_ack=True)
        consumer.ready()
        for turn in range(3):
            durable.restart()
            ups.wait()
            mq.publish("e", str(turn), confirm=True)
            message = consumer.get()
            assert message.data == str(turn)
            assert message.ack(confirm=True)
        mq.close()


def test_a_renewed_certificate_is_read_for_the_next_connection(tmp_path: Path, open_mq: Open) -> None:
    """The client's own too: its files are read when it connects."""
    ups = Ups()
    first = Authority(folder(tmp_path / "first"))
    with broker(tls_cert=first.issue(), tls_ca=first.file) as wary:
        mq = open_mq(wary, ca=first.file, cert=first.issue("client.pem", "client"), **ups.options)
        renewed = Authority(folder(tmp_path / "first"))
        renewed.issue()
        renewed.issue("client.pem", "client")
        wary.restart()
        ups.wait()
        assert mq.ping("hello") == "hello"
        mq.close()


def test_a_certificate_that_will_not_do_any_more_is_said_once(
    tmp_path: Path, open_mq: Open, caplog: pytest.LogCaptureFixture, attempts: threading.Semaphore
) -> None:
    """And tried on: somebody may mend it."""

    def said() -> int:
        return sum("cannot trust" in record.getMessage() for record in caplog.records)

    ups, authority = Ups(), Authority(folder(tmp_path / "its"))
    good = authority.issue()
    with broker(tls_cert=good) as made:
        mq = open_mq(made, ca=authority.file, **ups.options)
        kept = good.read_bytes()
        good.write_bytes(Authority(folder(tmp_path / "other")).issue().read_bytes())
        made.restart()
        assert ups.down.wait(PATIENCE)
        while not said():  # before that, attempts fail since nobody is there
            assert attempts.acquire(timeout=PATIENCE)
        for _ in range(5):
            assert attempts.acquire(timeout=PATIENCE)
        assert said() == 1
        good.write_bytes(kept)
        made.restart()
        assert ups.up.wait(PATIENCE)
        assert mq.ping("hello") == "hello"
        mq.close()


def test_a_forked_child_does_not_disturb_its_parent(sealed: Broker, ours: Authority) -> None:
    with mqks.connect(sealed.url, ca=ours.file) as mq, mq.consume("q", ["e"]) as consumer:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                mq.publish("e", "1")
            except mqks.ConnectionLost:
                mq.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        mq.publish("e", "2", confirm=True)
        assert next(consumer).data == "2"


def test_close_sends_what_is_buffered(sealed: Broker, ours: Authority, open_mq: Open) -> None:
    mq = open_mq(sealed, ca=ours.file)
    mq.rebind("q", ["e"])
    for number in range(5000):
        mq.publish("e", str(number))
    mq.close()
    assert open_mq(sealed, ca=ours.file).stats()["queues"]["q"]["ready"] == 5000
