"""The broker's port by TLS: the same protocol, whole however it is cut, and exact about what has left."""

import random
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

import mqks.testing
from mqks.broker.connections.client import CONNECTION_COST, TLS_COST
from tests import dialogue
from tests.certificates import Authority
from tests.dialogue import Dialogue
from tests.running import PATIENCE, Connection, RunningBroker, SocketWire, running_broker
from tests.server.test_connections import Control, read_all, reset
from tests.tokens import ALL, auth_file, token
from tests.web.asking import inner

DIALOGUES = [each for each in map(dialogue.load, dialogue.names()) if not each.flags]
VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda v: v.name)
ERROR = re.compile(rb"- error ([0-9]{20}[0-9a-zA-Z]{4})\n")
MUCH = b"x" * (24 << 20)


class Raw:
    """A client whose sealed bytes are in the test's hands; it reads when it is told to."""

    def __init__(self, port: int, context: ssl.SSLContext, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.address = "{}:{}".format(*self.socket.getsockname())
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def close(self) -> None:
        self.socket.close()

    def shake_hands(self, cut: Callable[[bytes], Iterator[bytes]] = lambda sealed: iter((sealed,))) -> None:
        while True:
            try:
                self._tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            for piece in cut(self._outgoing.read()):
                self.socket.sendall(piece)
            if done:
                return
            self._incoming.write(self.socket.recv(1 << 16))

    def seal(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()

    def end(self) -> bytes:
        """What says that no more comes."""
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.unwrap()
        return self._outgoing.read()

    def read(self, size: int) -> bytes:
        """So much, or what came until the end."""
        came = b""
        while len(came) < size:
            try:
                if not (piece := self._tls.read(1 << 16)):
                    break
                came += piece
            except ssl.SSLZeroReturnError:
                break
            except ssl.SSLWantReadError:
                if not (sealed := self.socket.recv(1 << 16)):
                    break
                self._incoming.write(sealed)
        return came


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def context(authority: Authority) -> ssl.SSLContext:
    return authority.context()


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[RunningBroker]:
    with running_broker(f"--tls-cert={authority.issue()}", "--max-line=32M") as broker:
        yield broker


@pytest.fixture
def control(broker: RunningBroker, context: ssl.SSLContext) -> Iterator[Control]:
    """In the end of a test its clients are gone."""
    with closing(Control(broker.port, context)) as control:
        yield control
        control.until("state.connections == 1")


def connect(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    """One that takes an end for one only if TLS says so."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False)


# ── the same protocol ──


@pytest.mark.parametrize("played", DIALOGUES, ids=lambda each: each.name)
def test_dialogue(played: Dialogue, broker: RunningBroker, context: ssl.SSLContext) -> None:
    with SocketWire(broker, context) as wire:
        dialogue.play(played, wire)


@VERSIONS
def test_versions_that_are_spoken(broker: RunningBroker, authority: Authority, version: ssl.TLSVersion) -> None:
    context = authority.context()
    context.minimum_version = context.maximum_version = version
    with connect(broker.port, context) as client:
        assert client.version() == version.name.replace("_", ".")
        assert client.compression() is None
        client.sendall(b"p1 ping here\n")
        assert client.recv(100) == b"p1 ok here\n"


@pytest.mark.usefixtures("control")
def test_tls_1_1_is_refused(broker: RunningBroker, authority: Authority) -> None:
    context = authority.context()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        connect(broker.port, context)
    assert broker.wait_for_log("TLS failed: unsupported protocol")


@pytest.mark.usefixtures("control")
def test_lines_of_a_megabyte(broker: RunningBroker, context: ssl.SSLContext) -> None:
    data = random.Random(1).randbytes(1 << 19).hex().encode()
    with connect(broker.port, context) as client, client.makefile("rb") as lines:
        client.sendall(b"c1 consume --delete-queue-when-unused q1 e1\n")
        for n in range(4):
            client.sendall(b"m%d publish e1 %s\n" % (n, data))
        for n in range(4):
            assert lines.readline() == b"c1 ok m%d event=e1 %s\n" % (n, data)


# ── cut anywhere ──


def byte_by_byte(sealed: bytes) -> Iterator[bytes]:
    return (sealed[at : at + 1] for at in range(len(sealed)))


def at_random(sealed: bytes) -> Iterator[bytes]:
    rng, at = random.Random(7), 0
    while at < len(sealed):
        size = rng.choice((1, 4, 5, 6, 100, 16384, 20000, 40000))
        yield sealed[at : at + size]
        at += size


@VERSIONS
@pytest.mark.usefixtures("control")
def test_byte_by_byte(broker: RunningBroker, authority: Authority, version: ssl.TLSVersion) -> None:
    context = authority.context()
    context.minimum_version = context.maximum_version = version
    with closing(Raw(broker.port, context)) as client:
        client.shake_hands(byte_by_byte)
        for piece in byte_by_byte(client.seal(b"p1 ping a\np2 pi") + client.seal(b"ng b\n")):
            client.socket.sendall(piece)
        assert client.read(16) == b"p1 ok a\np2 ok b\n"


@pytest.mark.usefixtures("control")
def test_records_cut_anywhere(broker: RunningBroker, context: ssl.SSLContext) -> None:
    lines = b"".join(b"p%d ping %s\n" % (n, b"x" * (n % 1000)) for n in range(2000))
    rng, at, sealed = random.Random(3), 0, b""
    with closing(Raw(broker.port, context)) as client:
        client.shake_hands(at_random)
        while at < len(lines):
            size = rng.choice((1, 2, 30, 5000, 16384, 30000))
            sealed += client.seal(lines[at : at + size])
            at += size

        def send() -> None:
            for piece in at_random(sealed):
                client.socket.sendall(piece)

        sending = threading.Thread(target=send)
        sending.start()
        assert client.read(len(lines) - 2000 * 2) == lines.replace(b" ping ", b" ok ")
        sending.join()


# ── many, and slow ──


def test_many_messages_both_ways_and_a_reader_that_waits(
    broker: RunningBroker, context: ssl.SSLContext, control: Control
) -> None:
    """Nothing is read before all is published: it must wait in the broker, and come whole and in order."""
    count, data = 20_000, b"y" * 1000
    with connect(broker.port, context) as consumer, connect(broker.port, context) as publisher:
        consumer.sendall(b"c1 consume --confirm --delete-queue-when-unused q1 e1\n")
        assert consumer.recv(100) == b"c1 ok \n"
        publisher.sendall(b"".join(b"m%05d publish e1 %s\n" % (n, data) for n in range(count)) + b"p1 ping\n")
        assert publisher.recv(100) == b"p1 ok \n"
        assert int(control.eval("state.queues['q1'].ready")) > count // 2
        with consumer.makefile("rb") as lines:
            for n in range(count):
                assert lines.readline() == b"c1 ok m%05d event=e1 %s\n" % (n, data)
        control.until("state.queues['q1'].unacked == 0")


@VERSIONS
def test_what_has_not_left_returns_to_its_queue(
    broker: RunningBroker, authority: Authority, control: Control, version: ssl.TLSVersion
) -> None:
    """Auto ack: a message counts as taken when the last byte of its record was. The client can open just these."""
    context = authority.context()
    context.minimum_version = context.maximum_version = version
    count = 10_000
    with closing(Raw(broker.port, context, receive_buffer=20_000)) as consumer:
        consumer.shake_hands()
        consumer.socket.sendall(consumer.seal(b"c1 consume --confirm q1 e1\n"))
        assert consumer.read(7) == b"c1 ok \n"
        control.send(b"".join(b"m%05d publish e1 %s\n" % (n, b"z" * 997) for n in range(count)))
        control.until(f"state.queues['q1'].published == {count}")
        sent, before = f"state.clients['{consumer.address}'].sent", ""
        while (now := control.eval(sent)) != before:  # until the kernel takes no more
            before = now
            control.ask("p1 ping")
        assert 0 < int(now) < 997 * count
        consumer.socket.sendall(b"no record of TLS")  # the broker cuts it off
        control.until("state.queues['q1'].consumers == 0")
        came = consumer.read(1 << 30)
    lines = came.splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]
    assert whole == [b"c1 ok m%05d event=e1 %s\n" % (n, b"z" * 997) for n in range(len(whole))]
    assert int(control.eval("state.queues['q1'].ready")) == count - len(whole)
    assert control.ask("d1 delete_queue --confirm q1") == "d1 ok "


def test_one_who_publishes_and_closes_at_once_is_heard(
    broker: RunningBroker, context: ssl.SSLContext, control: Control
) -> None:
    """What TLS says unasked after its handshake would reset the connection, and the kernel drop what it has still."""
    assert control.ask("r1 rebind --confirm q1 e1") == "r1 ok "
    for _ in range(5):
        with connect(broker.port, context) as client:
            client.sendall(b"m1 publish e1 %s\n" % (b"x" * 10_000) * 500)
    control.until("state.queues['q1'].ready == 2500")
    assert control.ask("d1 delete_queue --confirm q1") == "d1 ok "


# ── ends ──


@pytest.mark.usefixtures("control")
def test_one_who_ends_its_sending_gets_its_replies(broker: RunningBroker, context: ssl.SSLContext) -> None:
    with closing(Raw(broker.port, context)) as client:
        client.shake_hands()
        pings = b"".join(b"%06d ping %s\n" % (n, b"x" * 20) for n in range(20_000))
        sealed = client.seal(pings) + client.end()
        sending = threading.Thread(target=client.socket.sendall, args=(sealed,))
        sending.start()
        assert client.read(1 << 30) == pings.replace(b" ping ", b" ok ")
        sending.join()
        assert client.socket.recv(100) == b""


def test_what_waits_when_one_ends_its_sending_is_taken_at_its_pace(
    authority: Authority, context: ssl.SSLContext
) -> None:
    with (
        running_broker(f"--tls-cert={authority.issue()}", "--max-rate=1000") as broker,
        closing(Control(broker.port, context)) as control,
        closing(Raw(broker.port, context)) as client,
    ):
        assert control.ask("r1 rebind --confirm q1 e1") == "r1 ok "
        client.shake_hands()
        client.socket.sendall(client.seal(b"m1 publish e1 data\n" * 1500) + client.end())
        client.close()
        assert broker.wait_for_log(f"client {client.address} is slowed down")
        control.until("state.connections == 1")
        assert control.eval("state.queues['q1'].ready") == "1500"


def test_what_waits_when_one_ends_its_sending_is_taken_when_it_is_known(
    authority: Authority, context: ssl.SSLContext, tmp_path: Path
) -> None:
    tokens = auth_file(tmp_path, boss=ALL)
    with (
        running_broker(f"--tls-cert={authority.issue()}", f"--auth-file={tokens}") as broker,
        closing(Raw(broker.port, context)) as client,
        closing(Control(broker.port, context)) as control,
    ):
        client.shake_hands()
        lines = b"r1 rebind q1 e1\n" + b"p1 ping\n" * 200 + b"m1 publish e1 data\n"
        client.socket.sendall(client.seal(b"a1 auth %s\n" % token("boss").encode() + lines) + client.end())
        assert client.read(1 << 20) == b"a1 ok \n" + b"p1 ok \n" * 200
        assert control.ask(f"a1 auth {token('boss')}") == "a1 ok "
        assert control.eval("state.queues['q1'].ready") == "1"


def test_a_record_that_does_not_end_is_a_line_that_does_not_end(authority: Authority, context: ssl.SSLContext) -> None:
    with (
        running_broker(f"--tls-cert={authority.issue()}", "--line-timeout=0.1") as broker,
        closing(Raw(broker.port, context)) as client,
    ):
        client.shake_hands()
        client.socket.sendall(client.seal(b"p1 ping\n")[:-5])
        assert ERROR.fullmatch(client.read(1 << 20))
        assert broker.wait_for_log(f"client={client.address} reason='a line did not end")


def test_the_memory_of_tls_counts(authority: Authority, context: ssl.SSLContext) -> None:
    with mqks.testing.broker(tls_cert=authority.issue()) as broker:
        core = inner(broker).core
        before = core.account.used
        with closing(Raw(broker.port, context)) as client:
            client.shake_hands()
            client.socket.sendall(client.seal(b"p1 ping\n"))
            assert client.read(7) == b"p1 ok \n"
            assert core.account.used - before >= TLS_COST
        while inner(broker).connections.clients:
            pass
        assert core.account.used == before


def test_handshakes_in_progress_have_a_bounded_part_of_memory(authority: Authority, context: ssl.SSLContext) -> None:
    """One more takes the place of the oldest, when that one has had its time; so somebody who comes later is served."""
    with (
        mqks.testing.broker(tls_cert=authority.issue(), max_memory="4M") as broker,
        ExitStack() as stack,
    ):
        inner(broker).authentication._most_cost = 3 * TLS_COST
        stalled = [stack.enter_context(closing(Raw(broker.port, context))) for _ in range(10)]
        for client in stalled:
            client.socket.sendall(b"\x16\x03\x01\x02\x00\x01")
        served = stack.enter_context(closing(Raw(broker.port, context)))
        served.shake_hands()
        assert len(inner(broker).connections.clients) <= 4
        assert inner(broker).core.account.used < 5 * (TLS_COST + CONNECTION_COST)
        assert inner(broker).limits.times["max_memory"] >= 7


@pytest.mark.usefixtures("control")
def test_half_closed_without_a_word_gets_its_replies(broker: RunningBroker, context: ssl.SSLContext) -> None:
    with closing(Raw(broker.port, context)) as client:
        client.shake_hands()
        client.socket.sendall(client.seal(b"p1 ping a\np2 ping b\nhalf a line"))
        client.socket.shutdown(socket.SHUT_WR)
        assert client.read(1 << 20) == b"p1 ok a\np2 ok b\n"


@pytest.mark.parametrize("after", ["connecting", "half a hello", "the handshake", "a line"])
@pytest.mark.parametrize("leave", [socket.socket.close, reset], ids=["closes", "resets"])
def test_one_who_goes(
    broker: RunningBroker, context: ssl.SSLContext, control: Control, after: str, leave: Callable[[socket.socket], None]
) -> None:
    before = broker.log
    client = Raw(broker.port, context)
    if after == "half a hello":
        client.socket.sendall(b"\x16\x03\x01\x02")
    elif after != "connecting":
        client.shake_hands()
    if after == "a line":
        client.socket.sendall(client.seal(b"p1 ping\n"))
    leave(client.socket)
    control.until("state.connections == 1")
    assert "Traceback" not in broker.log and broker.log.count("TLS failed") == before.count("TLS failed")


def test_a_stop_sends_what_is_buffered_and_says_that_it_ends(authority: Authority, context: ssl.SSLContext) -> None:
    with (
        running_broker(f"--tls-cert={authority.issue()}", "--max-line=32M") as broker,
        connect(broker.port, context) as consumer,
        closing(Control(broker.port, context)) as control,
    ):
        consumer.sendall(b"c1 consume --confirm q1 e1\n")
        assert consumer.recv(100) == b"c1 ok \n"
        control.send(b"m1 publish --confirm e1 " + MUCH + b"\n")
        assert control.line() == b"m1 ok "
        broker.process.terminate()
        assert read_all(consumer) == b"c1 ok m1 event=e1 " + MUCH + b"\n"
        assert broker.process.wait(PATIENCE) == 0, "a second SIGTERM could end it before its exit code is 0"


# ── those who do not belong ──


@pytest.mark.usefixtures("control")
def test_one_who_speaks_in_plain_is_told_so(broker: RunningBroker) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as client:
        client.sendall(b"p1 ping hello\n" * 1000)
        error = ERROR.fullmatch(read_all(client))
    assert error
    said = broker.wait_for_log(f"{error[1].decode()}.*")
    assert said and "it does not speak TLS" in said[0]


@pytest.mark.usefixtures("control")
def test_garbage_within_tls(broker: RunningBroker, context: ssl.SSLContext) -> None:
    with closing(Raw(broker.port, context)) as client:
        client.shake_hands()
        sealed = bytearray(client.seal(b"p1 ping\n"))
        sealed[-1] ^= 1
        client.socket.sendall(sealed)
        with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
            client.read(100)
    assert broker.wait_for_log(rf"client={client.address} reason='TLS failed: .*bad record mac'")
    assert "Traceback" not in broker.log


@pytest.mark.usefixtures("control")
def test_nothing_is_said_in_plain_within_tls(broker: RunningBroker, context: ssl.SSLContext) -> None:
    with closing(Raw(broker.port, context)) as client:
        client.shake_hands()
        client.socket.sendall(b"p1 ping\n")
        assert b"error" not in read_all(client.socket)
    assert broker.wait_for_log(rf"client={client.address} reason='TLS failed: wrong version number'")


@pytest.fixture(scope="module")
def choosy(authority: Authority) -> Iterator[RunningBroker]:
    """It wants to see certificates."""
    with running_broker(f"--tls-cert={authority.issue()}", f"--tls-ca={authority.file}") as broker:
        yield broker


def test_a_client_with_a_certificate_is_let_in(choosy: RunningBroker, authority: Authority) -> None:
    with connect(choosy.port, authority.context(authority.issue("client.pem", "client.example"))) as client:
        client.sendall(b"p1 ping here\n")
        assert client.recv(100) == b"p1 ok here\n"


@VERSIONS
@pytest.mark.parametrize(
    ("shown", "said"), [("none", "peer did not return a certificate"), ("of another", "certificate will not do")]
)
def test_a_client_without_one_is_not(
    choosy: RunningBroker, authority: Authority, tmp_path: Path, version: ssl.TLSVersion, shown: str, said: str
) -> None:
    context = authority.context(None if shown == "none" else Authority(tmp_path).issue())
    context.minimum_version = context.maximum_version = version
    before = choosy.log.count("TLS failed")
    with pytest.raises(ssl.SSLError, match="ALERT"), connect(choosy.port, context) as client:
        client.sendall(b"p1 ping here\n")  # in TLS 1.3 a client hears of it only now
        client.recv(100)
    assert choosy.wait_for_log(rf"(?s)(TLS failed.*){{{before}}}TLS failed: [^\n]*{said}")
    assert choosy.log.count("TLS failed") == before + 1 and "Traceback" not in choosy.log


def test_a_stranger_until_the_handshake_is_done(authority: Authority, context: ssl.SSLContext) -> None:
    with mqks.testing.broker(tls_cert=authority.issue()) as broker, closing(Raw(broker.port, context)) as client:
        client.socket.sendall(b"\x16\x03\x01\x02\x00\x01")
        while not (there := broker._call(lambda: list(inner(broker).connections.clients))):
            pass
        assert there[0].stranger and there[0].tls is not None


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a hello"])
def test_a_handshake_that_stalls_is_cut_off(authority: Authority, context: ssl.SSLContext, said: bytes) -> None:
    with (
        running_broker(f"--tls-cert={authority.issue()}", "--auth-timeout=0.2") as broker,
        closing(Raw(broker.port, context)) as stalled,
    ):
        stalled.socket.sendall(said)
        assert stalled.socket.recv(100) == b""
        assert broker.wait_for_log(f"client={stalled.address} reason='.*--auth-timeout")


def test_a_handshake_in_time_ends_the_timeout(authority: Authority, context: ssl.SSLContext) -> None:
    """Another client that stalls, and came later, is cut off by then."""
    with (
        running_broker(f"--tls-cert={authority.issue()}", "--auth-timeout=1") as broker,
        closing(in_time(broker.port, context)) as quick,
        closing(Raw(broker.port, context)) as stalled,
    ):
        assert stalled.socket.recv(100) == b""
        assert quick.ask("p1 ping it was in time") == "p1 ok it was in time"


def in_time(port: int, context: ssl.SSLContext) -> Connection:
    """A connection whose handshake took less than the broker allows: a busy machine may need some attempts."""
    while True:
        with suppress(OSError):
            return Connection(port, context)


def test_known_after_its_handshake(authority: Authority, context: ssl.SSLContext) -> None:
    with mqks.testing.broker(tls_cert=authority.issue()) as broker, closing(Raw(broker.port, context)) as client:
        client.shake_hands()
        client.socket.sendall(client.seal(b"m1 publish --confirm e1 " + b"x" * 10_000 + b"\n"))
        assert client.read(7) == b"m1 ok \n"  # a stranger's lines are short
