"""Who is let in by a real mqksd: with tokens, without, from this host and from others; and what a reload changes."""

import asyncio
import re
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

import mqks.testing
from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.server import app, openness, tcp
from mqks.server.config import Config, ConfigError
from mqks.server.systemd import Systemd
from mqks.server.tcp import TcpServer, bind
from mqks.server.tokens import Hash
from tests.conftest import Connect
from tests.running import PATIENCE, Connection, RunningBroker, launch
from tests.tokens import ALL, auth_file, token

LISTENS = "0A"  # the state of such a socket in /proc/net/tcp
FREE_OF_SECRETS = re.compile(r"secret-of|scrypt:")
ELSEWHERE = "192.0.2.7"


@pytest.fixture
def started() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(started: ExitStack, folder: Path, *flags: str) -> RunningBroker:
    broker = launch("--memory", *flags, folder=folder)
    started.callback(broker.stop)
    return broker


@pytest.fixture
def guarded(started: ExitStack, tmp_path: Path) -> RunningBroker:
    """One with tokens for a worker and a boss."""
    path = auth_file(tmp_path, worker={"publish": ["order.*"], "consume": {"queues": ["mail"]}}, boss=ALL)
    broker = start(started, tmp_path, f"--auth-file={path}", "--auth-timeout=60")
    broker.wait_until_it_listens()
    return broker


def reload(broker: RunningBroker) -> None:
    """Returns when it has happened."""
    broker.process.send_signal(signal.SIGHUP)
    assert broker.wait_for_log(r"tokens (were read anew|stay as they were)"), broker.log


# ── tokens ──


def test_a_token_lets_one_in_to_do_what_it_may(guarded: RunningBroker, connect: Connect) -> None:
    wire = connect(guarded)
    assert wire.ask("p1 ping").startswith("p1 error ")
    assert wire.ask(f"a1 auth {token('worker')}") == "a1 ok "
    assert wire.ask("p1 ping hi") == "p1 ok hi"
    assert wire.ask("m1 publish --confirm order.new 1") == "m1 ok "
    error_id = wire.ask("m2 publish --confirm salary 1").removeprefix("m2 error ")
    logged = guarded.wait_for_log(rf"error {error_id} .*")
    assert logged and "not permitted: publish: 'salary'" in logged[0] and "token='worker'" in logged[0]
    sevx = connect(guarded)
    assert sevx.ask(f'a1 auth {{"token": "{token("boss")}"}}') == "a1 ok "
    assert sevx.ask("e1 _eval sorted(c.token for c in state.clients.values())") == "e1 ok ['boss', 'worker']"


def test_a_wrong_token_is_answered_late_and_ends_the_connection(guarded: RunningBroker, connect: Connect) -> None:
    wire, other = connect(guarded), connect(guarded)
    wire.send(f"a1 auth {token('worker', 2)}\np1 ping\n".encode())
    assert other.ask(f"a1 auth {token('boss')}") == "a1 ok ", "it waits for nobody"
    error_id = wire.line().decode().removeprefix("a1 error ")
    with pytest.raises(ConnectionError):
        wire.line()
    logged = guarded.wait_for_log(rf"error {error_id} client=127\.0\.0\.1:\d+ reason=.*")
    assert logged and "the token is not one that is known: it is named 'worker'" in logged[0]
    assert not FREE_OF_SECRETS.search(guarded.log)


def test_lines_of_a_stranger_are_short(guarded: RunningBroker, connect: Connect) -> None:
    wire = connect(guarded)
    wire.send(b"a1 auth " + b"x" * 5000)
    assert wire.line().startswith(b"a1 error ")
    assert guarded.wait_for_log("its lines have at most 4096 bytes")
    assert wire.ask(f"\na2 auth {token('worker')}") == "a2 ok "
    assert wire.ask("p1 ping " + "x" * 100_000) == "p1 ok " + "x" * 100_000


def test_who_says_nothing_goes_after_a_while(started: ExitStack, tmp_path: Path, connect: Connect) -> None:
    path = auth_file(tmp_path, worker={}, boss=ALL)
    broker = start(started, tmp_path, f"--auth-file={path}", "--auth-timeout=1s")
    broker.wait_until_it_listens()
    silent, chatty = connect(broker), connect(broker)
    chatty.send(b"p1 ping\n")
    assert until_cut_off(silent)[:-1] == []
    assert [line[:9] for line in until_cut_off(chatty)[:-1]] in ([b"p1 error "], [])  # on a busy machine it is late
    known = connect(broker)
    while not (said := known.ask(f"a1 auth {token('boss')}")).startswith("a1 ok "):  # as this one may be
        assert said.startswith("- error ")
        known = connect(broker)
    assert int(known.ask("e1 _eval state.limits['auth_timeout']").removeprefix("e1 ok ")) >= 2


def until_cut_off(wire: Connection) -> list[bytes]:
    """All lines, of which the last is an error that answers no request."""
    lines = []
    with suppress(ConnectionError):
        while True:
            lines.append(wire.line())
    assert lines[-1].startswith(b"- error ")
    return lines


def test_strangers_keep_nobody_out_who_has_a_token(started: ExitStack, tmp_path: Path, connect: Connect) -> None:
    path = auth_file(tmp_path, worker={}, boss=ALL)
    limits = ("--max-connections=7", "--max-connections-per-address=3", "--auth-timeout=0")
    broker = start(started, tmp_path, f"--auth-file={path}", *limits)
    broker.wait_until_it_listens()
    boss = connect(broker)
    assert boss.ask(f"a1 auth {token('boss')}") == "a1 ok "
    addresses = [f"127.0.0.{number}" for number in (2, 2, 2, 3, 3, 3)]
    silent = [started.enter_context(connect_from(address, broker.port)) for address in addresses]
    boss.until_true("state.connections == 7")
    worker = started.enter_context(connect_from("127.0.0.4", broker.port))
    worker.sendall(f"a1 auth {token('worker')}\n".encode())
    assert worker.recv(100) == b"a1 ok \n"
    error_id = silent[0].recv(100).decode().removeprefix("- error ").rstrip()
    assert silent[0].recv(100) == b""
    assert broker.wait_for_log(rf"error {error_id} client=127\.0\.0\.2:\d+ reason='--max-connections is reached: ano")
    assert boss.ask("e1 _eval state.connections, state.limits['max_connections']") == "e1 ok (7, 1)"


def connect_from(address: str, port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE, (address, 0))


def test_thousands_who_come_back_are_let_in_at_once(tmp_path: Path) -> None:
    path = auth_file(tmp_path, worker={})
    with mqks.testing.broker(auth_file=str(path)) as broker, ExitStack() as stack:
        wires = [stack.enter_context(closing(Connection(broker.port))) for _ in range(300)]
        for wire in wires:
            wire.send(f"a1 auth {token('worker')}\n".encode())
        assert {wire.line() for wire in wires} == {b"a1 ok "}


def test_those_who_go_leave_no_checks_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    begun, let_go, gone = threading.Event(), threading.Event(), threading.Semaphore(0)
    matches, closed = Hash.matches, tcp._closed

    def held(self: Hash, text: str) -> bool:
        checked.append(text)
        begun.set()
        assert let_go.wait(PATIENCE)
        return matches(self, text)

    def noticed(broker: Broker, client: Client) -> None:
        closed(broker, client)
        gone.release()

    monkeypatch.setattr(Hash, "matches", held)
    monkeypatch.setattr(tcp, "_closed", noticed)
    path = auth_file(tmp_path, worker={})
    with mqks.testing.broker(auth_file=str(path)) as broker, ExitStack() as stack:
        stack.callback(let_go.set)
        first, right = (stack.enter_context(closing(Connection(broker.port))) for _ in range(2))
        first.send(b"a1 auth first.x\n")
        assert begun.wait(PATIENCE)
        for number in range(50):
            with socket.create_connection(("127.0.0.1", broker.port)) as stranger:
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                stranger.sendall(b"a1 auth x%d.y\n" % number)
        assert all(gone.acquire(timeout=PATIENCE) for _ in range(50))
        right.send(f"a1 auth {token('worker')}\n".encode())
        let_go.set()
        assert right.line() == b"a1 ok "
        assert checked == ["first.x", token("worker")]


# ── reading anew ──


def test_a_revoked_token_ends_its_connections_and_no_others(
    guarded: RunningBroker, connect: Connect, tmp_path: Path
) -> None:
    worker, boss = connect(guarded), connect(guarded)
    assert worker.ask(f"a1 auth {token('worker')}") == boss.ask(f"a1 auth {token('boss')}") == "a1 ok "
    assert worker.ask("c1 consume mail --confirm") == "c1 ok "
    auth_file(tmp_path, boss=ALL)
    reload(guarded)
    with pytest.raises(ConnectionError):
        worker.line()
    assert guarded.wait_for_log(r"client \S+ is cut off: its token was revoked: worker")
    assert boss.ask("e1 _eval len(state.clients), state.queues['mail'].consumers") == "e1 ok (1, 0)"
    again = connect(guarded)
    assert again.ask(f"a1 auth {token('worker')}").startswith("a1 error ")


def test_a_revoked_one_gets_nothing_more_and_no_message_is_got_twice(
    guarded: RunningBroker, connect: Connect, tmp_path: Path
) -> None:
    worker, boss = connect(guarded), connect(guarded)
    assert worker.ask(f"a1 auth {token('worker')}") == boss.ask(f"a1 auth {token('boss')}") == "a1 ok "
    assert boss.ask("r1 rebind mail e1 --confirm") == "r1 ok "
    assert worker.ask("c1 consume mail --confirm") == "c1 ok "
    published = [b"m%d" % number for number in range(300)]  # more than the system keeps for who does not read
    for each in published:
        boss.send(each + b" publish --confirm e1 " + b"d" * 100_000 + b"\n")
    assert [boss.line() for _ in published] == [each + b" ok " for each in published]
    auth_file(tmp_path, boss=ALL)
    reload(guarded)
    got = []
    with pytest.raises(ConnectionError):
        while True:
            got.append(worker.line().split(b" ")[2])
    boss.send(b"c2 consume mail\n")
    left = [boss.line().split(b" ")[2] for _ in range(len(published) - len(got))]
    assert got + left == published
    assert boss.ask("e1 _eval state.queues['mail'].ready") == "e1 ok 0"


def test_a_sighup_before_it_listens_is_heeded_when_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end a process that does not expect it, and a recovery may take minutes."""
    reloads: list[str] = []

    def run(_: Config, started: app.Started, __: Systemd) -> None:
        async def listening() -> None:
            signal.raise_signal(signal.SIGHUP)
            assert not reloads
            started(Mock(), lambda: None, lambda: reloads.append("now"))

        asyncio.run(listening())

    monkeypatch.setattr(app, "run", run)
    before = signal.getsignal(signal.SIGHUP)
    try:
        assert app.serve(Config(), Systemd()) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert reloads == ["now"]


def test_rights_that_changed_count_for_those_who_are_there(
    guarded: RunningBroker, connect: Connect, tmp_path: Path
) -> None:
    worker = connect(guarded)
    assert worker.ask(f"a1 auth {token('worker')}") == "a1 ok "
    assert worker.ask("m1 publish --confirm order.new 1") == "m1 ok "
    auth_file(tmp_path, worker={"publish": ["mail.*"]}, boss=ALL)
    reload(guarded)
    assert worker.ask("m2 publish --confirm order.new 1").startswith("m2 error ")
    assert worker.ask("m3 publish --confirm mail.new 1") == "m3 ok "


def test_a_file_that_is_wrong_changes_nothing(guarded: RunningBroker, connect: Connect, tmp_path: Path) -> None:
    worker = connect(guarded)
    assert worker.ask(f"a1 auth {token('worker')}") == "a1 ok "
    (tmp_path / "tokens.toml").write_text("[tokens.worker]\n")
    reload(guarded)
    assert guarded.wait_for_log(r" error tokens stay as they were: .*tokens\.worker: it has no hash")
    assert worker.ask("m1 publish --confirm order.new 1") == "m1 ok "
    late = connect(guarded)
    assert late.ask(f"a1 auth {token('boss')}") == "a1 ok "


# ── where it listens ──


def listening(pid: int) -> set[tuple[str, int]]:
    """The addresses that a process listens on, as the system has them."""
    inodes = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(each.readlink()))
        except OSError:  # closed meanwhile
            continue
    found = set()
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS and f"socket:[{words[9]}]" in inodes:
                host, _, port = words[1].partition(":")
                raw = bytes.fromhex(host)
                address = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
                found.add((socket.inet_ntop(family, address), int(port, 16)))
    return found


def test_a_default_start_can_be_reached_from_this_host_alone(started: ExitStack, tmp_path: Path) -> None:
    broker = start(started, tmp_path, "--http", "--http-port=0")
    broker.wait_until_it_listens()
    found = listening(broker.process.pid)
    assert {host for host, _ in found} == {"127.0.0.1"}
    assert len(found) == 2, "its own port, and that of the dashboard"
    own = address_of_this_host()
    for _, port in found:
        with pytest.raises(OSError), socket.create_connection((own, port), timeout=PATIENCE):
            pass


def test_the_scan_finds_what_is_open(started: ExitStack, tmp_path: Path) -> None:
    broker = start(started, tmp_path, "--host=0.0.0.0", "--insecure")
    assert broker.wait_for_log(r"listening on 0\.0\.0\.0")
    assert {host for host, _ in listening(broker.process.pid)} == {"0.0.0.0"}


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--host=0.0.0.0"], "--host 0.0.0.0"),
        (["--host=::"], "--host ::"),
        ([f"--host={ELSEWHERE}"], f"--host {ELSEWHERE}"),
        (["--http", "--http-host=0.0.0.0"], "--http-host 0.0.0.0"),
    ],
)
def test_other_hosts_without_tokens_must_be_asked_for(tmp_path: Path, flags: list[str], named: str) -> None:
    broker = launch(*flags, folder=tmp_path)
    assert broker.process.wait(PATIENCE) == 2
    broker.stop()
    (line,) = broker.log.splitlines()
    assert f"{named} lets other hosts in" in line
    assert "--auth-file" in line and "--insecure" in line
    assert not list(tmp_path.iterdir()), "nothing was touched"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"host": "127.0.0.1"}, ""),
        ({"host": "localhost"}, ""),
        ({"host": "::1", "http_host": "localhost"}, ""),
        ({"http": False, "http_host": "0.0.0.0"}, ""),
        ({"host": "0.0.0.0", "insecure": True}, "they may do all: --insecure"),
        ({"host": "0.0.0.0", "auth_file": Path("tokens")}, "without TLS"),
        ({"host": "0.0.0.0", "auth_file": Path("tokens"), "tls_cert": Path("cert")}, ""),
        ({"host": "no such host"}, ""),
    ],
)
def test_what_is_fine_and_what_is_worth_a_warning(
    options: dict[str, object], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    openness.check(Config(**options), Systemd())  # type: ignore[arg-type]
    assert said in caplog.text if said else not caplog.text


def test_sockets_of_systemd_count_too() -> None:
    with closing(bind("0.0.0.0", 0)[0]) as wide, closing(bind("127.0.0.1", 0)[0]) as narrow:
        openness.check(Config(), Systemd(sockets={"mqks": [narrow], "http": [narrow]}))
        for given in ({"mqks": [wide]}, {"mqks": [narrow], "http": [wide]}):
            with pytest.raises(ConfigError, match=r"a socket of systemd on 0\.0\.0\.0 lets other hosts in"):
                openness.check(Config(), Systemd(sockets=given))


@pytest.mark.parametrize("content", ["[tokens.worker]\nhash = 'x'\n", None])
def test_a_file_that_will_not_do_is_one_line_at_the_start(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "tokens.toml"
    if content is not None:
        path.write_text(content)
        path.chmod(0o600)
    broker = launch("--memory", f"--auth-file={path}", folder=tmp_path)
    assert broker.process.wait(PATIENCE) == 2
    broker.stop()
    (line,) = broker.log.splitlines()
    assert " error " in line and str(path) in line


# ── those who come from elsewhere ──


def address_of_this_host() -> str:
    """One that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((ELSEWHERE, 9))
        except OSError:
            pytest.skip("this machine has no address but loopback; the broker's own door is tested in test_permissions")
        return str(asking.getsockname()[0])


def test_who_comes_from_elsewhere_is_told_and_turned_away(caplog: pytest.LogCaptureFixture) -> None:
    """The start refuses to listen there; this is for whoever comes all the same, by redirected packets say."""
    own = address_of_this_host()
    broker = Broker()
    server = TcpServer(broker)

    async def serve() -> list[bytes]:
        listeners = bind("0.0.0.0", 0)
        server.listen("", 0, lambda: None, listeners)
        port = listeners[0].getsockname()[1]
        answers = []
        for host in (own, "127.0.0.1"):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"p1 ping\n")
            answers.append(await reader.readline())
            writer.close()
        await server.stop()
        return answers

    try:
        with asyncio.Runner(loop_factory=server.new_loop) as runner:
            refused, served = runner.run(serve())
    finally:
        server.close()
    assert refused.startswith(b"- error ")
    assert served == b"p1 ok \n"
    error_id = refused.split()[2].decode()
    assert f"error {error_id} client={own}:" in caplog.text
    assert "only this host is let in" in caplog.text
    assert broker.connections.refused == 1


def test_with_insecure_they_are_let_in_but_for_eval(started: ExitStack, tmp_path: Path) -> None:
    own = address_of_this_host()
    broker = start(started, tmp_path, "--host=0.0.0.0", "--insecure")
    found = broker.wait_for_log(r"listening on 0\.0\.0\.0:(\d+)")
    assert found
    with socket.create_connection((own, int(found[1])), timeout=PATIENCE) as wire, wire.makefile("rb") as lines:
        wire.sendall(b"p1 ping\ns1 stats\ne1 _eval 1\n")
        assert lines.readline() == b"p1 ok \n"
        assert lines.readline().startswith(b"s1 ok {")
        assert lines.readline().startswith(b"e1 error ")


def test_with_tokens_they_have_to_say_one(tmp_path: Path) -> None:
    own = address_of_this_host()
    path = auth_file(tmp_path, worker={})
    with (
        mqks.testing.broker(host="0.0.0.0", auth_file=str(path)) as broker,
        socket.create_connection((own, broker.port), timeout=PATIENCE) as wire,
        wire.makefile("rb") as lines,
    ):
        wire.sendall(f"p1 ping\na1 auth {token('worker')}\np2 ping\n".encode())
        assert lines.readline().startswith(b"p1 error ")
        assert [lines.readline() for _ in range(2)] == [b"a1 ok \n", b"p2 ok \n"]


def test_nothing_of_it_stays_when_the_broker_stops(tmp_path: Path) -> None:
    path = auth_file(tmp_path, worker={})
    with mqks.testing.broker(auth_file=str(path)) as broker, closing(Connection(broker.port)) as wire:
        assert wire.ask(f"a1 auth {token('worker')}") == "a1 ok "
    assert not [each for each in threading.enumerate() if each.name.startswith("scrypt")]
