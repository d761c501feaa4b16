"""`auth` at the broker's door, in process: strangers, what waits for a decision, patience, and that no log has a token.

Who decides is the test itself, when it likes; so is the clock.
"""

import logging
import random
import ssl
from collections import Counter
from contextlib import suppress

import pytest

from mqks.broker import Broker
from mqks.broker.auth.access import EVERYTHING, Rights
from mqks.broker.auth.authentication import Decided, Drop
from mqks.broker.connections.client import Client, origin
from mqks.broker.connections.strangers import Strangers
from mqks.broker.limits import Limits
from tests.broker.driver import PEER, masked
from tests.broker.fake_sockets import FakeSockets

SECRET = "lJ5vC0Yq8nH3kT7wR2xZ4bM6pS9dF1gA_uEiOyQeWrT"
TOKEN = f"worker.{SECRET}"


class Door:
    """A broker with an auth file, and those who wait for a decision."""

    def __init__(self, max_connections: int = 10_000) -> None:
        self.now = 1000.0
        limits = Limits(auth_timeout=10.0, max_connections=max_connections)
        self.broker = Broker(clock=lambda: self.now, limits=limits)
        self.asked: list[tuple[str, str, Decided]] = []
        self.dropped: list[str] = []  # tokens that nobody needs to decide about any more
        self.hung_up: list[Client] = []
        self.broker.authentication.require_tokens(self._ask)
        self.broker.connections.attach(FakeSockets(hang_up=self.hung_up.append, dismiss=self._dismiss))
        self.dismissed: list[tuple[str, bytes]] = []  # who, and what it was told
        self.client = self.broker.connect(PEER)

    def _ask(self, token: str, peer: str, decided: Decided) -> Drop:
        self.asked.append((token, peer, decided))
        return lambda: self.dropped.append(token)

    def _dismiss(self, client: Client) -> None:
        self.dismissed.append((client.peer, client.pending()))
        self.broker.disconnect(client)

    def come(self, peer: str) -> Client | None:
        """One more, if it is let in."""
        return None if self.broker.connections.limit_error(peer) else self.broker.connect(peer)

    def say(self, *lines: bytes) -> list[bytes]:
        """All that is answered now."""
        self.broker.feed(self.client, b"".join(line + b"\n" for line in lines))
        return self.heard()

    def heard(self) -> list[bytes]:
        self.broker.turn()
        came = masked(self.client.pending())
        self.broker.sent(self.client, self.client.pending_size)
        return came.splitlines()

    def decide(self, answer: Rights | bytes) -> list[bytes]:
        _, _, decided = self.asked.pop(0)
        decided(answer)
        return self.heard()


@pytest.fixture
def door() -> Door:
    return Door()


def is_error(line: bytes, request_id: bytes) -> bool:
    return line.startswith(request_id + b" error ")


def test_a_stranger_is_told_to_say_who_it_is_and_may_go_on(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    answers = door.say(b"p1 ping hi", b"m1 publish e1 data", b"x", b'r1 recv {"queue": "q", "pattern": {}}')
    assert [is_error(line, name) for line, name in zip(answers, (b"p1", b"m1", b"x", b"r1"), strict=True)] == [True] * 4
    assert caplog.text.count("say who you are first: auth {token}") >= 3
    assert not door.hung_up and not door.broker.queues.by_name and not door.broker.core.router.published


def test_a_stranger_that_goes_on_is_hung_up_on(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    assert len(door.say(*[b"x"] * 10)) == 10
    assert not door.hung_up
    assert len(door.say(*[b"x"] * 1000)) == 6, "sixteen in all, and nothing more is heard"
    assert door.hung_up == [door.client]
    assert caplog.text.count("it is hung up on, since it has said much and not who it is") == 1
    assert door.say(b"a1 auth " + TOKEN.encode()) == [] and not door.asked


@pytest.mark.parametrize("line", [b"a1 auth " + TOKEN.encode(), b'a1 auth {"token": "%s"}' % TOKEN.encode()])
def test_what_follows_an_auth_waits_until_it_is_decided(door: Door, line: bytes) -> None:
    assert door.say(line, b"p1 ping 1", b"m1 publish e1 data") == []
    assert [(token, peer) for token, peer, _ in door.asked] == [(TOKEN, PEER)]
    assert door.say(b"p2 ping 2") == []
    assert door.decide(EVERYTHING) == [b"a1 ok ", b"p1 ok 1", b"p2 ok 2"]
    assert door.broker.core.router.published == 1
    assert (door.client.stranger, door.client.rights, door.client.granted) == (False, EVERYTHING, None)
    assert door.say(b"p3 ping 3") == [b"p3 ok 3"]


def test_a_refused_token_is_told_and_the_connection_ends(door: Door) -> None:
    door.say(b"a1 auth " + TOKEN.encode(), b"p1 ping")
    assert door.decide(b"20261231235959123456uN1q") == masked(b"a1 error 20261231235959123456uN1q\n").splitlines()
    assert door.hung_up == [door.client]
    assert door.say(b"p2 ping") == [], "nothing more is heard"
    assert door.broker.mistakes.errors == 1


def test_about_one_who_goes_nobody_needs_to_decide(door: Door) -> None:
    door.say(b"a1 auth " + TOKEN.encode())
    assert not door.dropped
    door.broker.disconnect(door.client)
    assert door.dropped == [TOKEN]


@pytest.mark.parametrize("answer", [EVERYTHING, b"20261231235959123456uN1q"])
def test_what_is_decided_is_not_dropped(door: Door, answer: Rights | bytes) -> None:
    door.say(b"a1 auth " + TOKEN.encode())
    door.decide(answer)
    door.broker.disconnect(door.client)
    assert not door.dropped


def test_a_second_auth_is_a_mistake(door: Door) -> None:
    door.say(b"a1 auth " + TOKEN.encode())
    door.decide(Rights("worker"))
    (answer,) = door.say(b"a2 auth " + TOKEN.encode())
    assert is_error(answer, b"a2")
    assert not door.asked and not door.hung_up
    assert door.client.rights.name == "worker"


@pytest.mark.parametrize(
    "line",
    [b"a1 auth", b"a1 auth ", b"a1 auth a b", b"a1 auth {}", b'a1 auth {"token": 5}', b'a1 auth {"token": "a b"}',
     b'a1 auth {"token": "a", "x": 1}', b'a1 auth {"token": ""}', b"a1 auth {"],
)  # fmt: skip
def test_what_is_no_auth_is_an_error_and_one_may_try_again(door: Door, line: bytes) -> None:
    (answer,) = door.say(line)
    assert is_error(answer, b"a1")
    assert not door.asked and not door.hung_up and door.client.stranger


def test_where_nobody_asks_any_token_is_fine() -> None:
    broker = Broker()
    client = broker.connect(PEER)
    broker.feed(client, b'a1 auth worker.any\na2 auth {"token": "worker.any"}\na3 auth --confirm worker.any\n')
    assert client.pending() == b"a1 ok \na2 ok \na3 ok \n"


# ── patience ──


def test_one_who_does_not_say_who_it_is_goes(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    door.say(b"p1 ping")
    door.now += 9.9
    door.broker.tick()
    assert not door.hung_up
    door.now += 0.2
    door.broker.tick()
    assert door.hung_up == [door.client]
    (last,) = door.heard()
    assert last.startswith(b"- error ")
    assert "within --auth-timeout" in caplog.text
    assert door.broker.limits.times["auth_timeout"] == 1


def test_whoever_has_said_it_has_time(door: Door) -> None:
    """As long as it waits for a decision, and after it."""
    door.say(b"a1 auth " + TOKEN.encode())
    door.now += 60
    door.broker.tick()
    door.decide(EVERYTHING)
    door.now += 60
    door.broker.tick()
    assert not door.hung_up


def test_patience_may_be_without_end() -> None:
    broker = Broker(clock=lambda: 0.0, limits=Limits(auth_timeout=0))
    broker.authentication.expect(broker.connect(PEER))
    assert broker.timers.next is None


def test_one_who_went_is_not_waited_for(door: Door) -> None:
    door.broker.disconnect(door.client)
    door.now += 60
    door.broker.tick()
    assert not door.hung_up
    assert door.broker.limits.times["auth_timeout"] == 0


def test_a_handshake_has_the_same_time_and_ends_it_where_nobody_asks() -> None:
    broker = Broker()
    gone: list[Client] = []
    broker.connections.attach(FakeSockets(hang_up=gone.append))
    met, waited_for = broker.connect(PEER), broker.connect(PEER)
    broker.authentication.expect(met)
    broker.authentication.expect(waited_for)
    assert met.stranger
    broker.authentication.on_handshake_done(met)
    assert not met.stranger
    broker.timers.clock = lambda: 1e18
    broker.tick()
    assert gone == [waited_for]


def test_after_a_handshake_one_still_has_to_say_who_it_is(door: Door) -> None:
    door.broker.authentication.on_handshake_done(door.client)
    assert door.client.stranger
    door.now += 60
    door.broker.tick()
    assert door.hung_up == [door.client]


# ── no room ──


def test_where_there_is_no_room_the_oldest_stranger_of_the_address_that_has_most_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = Door(max_connections=6)  # of which it has one
    door.say(b"a1 auth " + TOKEN.encode())
    for peer in ("192.0.2.1:1", "192.0.2.2:1", "192.0.2.1:2", "192.0.2.2:2", "192.0.2.3:1"):
        assert door.come(peer)
    expected = ["192.0.2.1:1", "192.0.2.2:1", PEER, "192.0.2.3:1", "192.0.2.1:2"]
    for number in range(1, 6):
        assert door.come(f"192.0.2.{number + 9}:1")
        assert [each for each, _ in door.dismissed] == expected[:number]
    assert all(is_error(told, b"-") for _, told in door.dismissed)
    assert door.dropped == [TOKEN], "who waits for a decision is not known yet"
    assert door.broker.connections.count == 6
    assert door.broker.limits.times["max_connections"] == door.broker.connections.refused == 5
    told = [record.getMessage() for record in caplog.records]
    for line, peer in zip(told, expected, strict=True):
        assert f"client={peer} reason='--max-connections is reached: another takes its place" in line


def test_who_is_known_stays_and_one_more_is_refused() -> None:
    door = Door(max_connections=2)
    door.say(b"a1 auth " + TOKEN.encode())
    door.decide(Rights("worker"))
    assert door.come("192.0.2.1:1") and door.come("192.0.2.2:1")
    assert [peer for peer, _ in door.dismissed] == ["192.0.2.1:1"]
    door.broker.authentication.require_tokens(None)
    assert door.come("192.0.2.3:1")
    assert door.come("192.0.2.4:1") is None
    assert [peer for peer, _ in door.dismissed] == ["192.0.2.1:1", "192.0.2.2:1"]
    assert door.client in door.broker.connections.clients


def test_an_address_that_has_as_many_as_it_may_takes_nobodys_place() -> None:
    door = Door(max_connections=3)
    door.broker.limits.max_connections_per_address = 2
    assert door.come("192.0.2.1:1") and door.come("192.0.2.1:2")
    assert door.come("192.0.2.1:3") is None
    assert not door.dismissed
    assert door.broker.limits.times["max_connections"] == 0


def test_who_goes_first_is_found_as_by_looking_at_all() -> None:
    random_ = random.Random(7)
    strangers, there = Strangers(), list[Client]()
    for number in range(5000):
        if there and random_.random() < 0.5:
            client = random_.choice(there)
            there.remove(client)
            strangers.discard(client)
            strangers.discard(client)
        else:
            there.append(Client(f"192.0.2.{random_.randrange(6)}:{number}"))
            strangers.add(there[-1])
            strangers.add(random_.choice(there))
        crowds = Counter(origin(client.peer) for client in there)
        first = strangers.first_to_go()
        if first is None:
            assert not there
        else:
            place = origin(first.peer)
            assert crowds[place] == max(crowds.values())
            assert first is next(client for client in there if origin(client.peer) == place)


# ── no log has a token ──

WITH_A_SECRET = [
    f"a1 auth {TOKEN}",
    f"a1 auth {TOKEN} more",
    f"a1 auth --confirm --nope {TOKEN}",
    f"a1 auth --{TOKEN}",
    f"a1 auth {TOKEN}\tx",
    f"a1 auth\t{TOKEN}",
    f"a1 auth {TOKEN}\0",
    f"a1\tauth {TOKEN}",
    f"a1  auth {TOKEN}",
    f" a1 auth {TOKEN}",
    f"a1 AUTH {TOKEN}",
    f"a1 authenticate {TOKEN}",
    f"a1 --auth {TOKEN}",
    f"auth {TOKEN}",
    f"auth  {TOKEN}",
    f"- auth {TOKEN}",
    f"-- auth {TOKEN}",
    f"{'i' * 190} auth {TOKEN}",
    f'a1 auth {{"token": "{TOKEN}"',
    f'a1 auth {{"token": "{TOKEN}", "x": 1}}',
    f'a1 auth {{"tokn": "{TOKEN}"}}',
    f'a1 auth {{"{TOKEN}": 1}}',
    f'a1 auth {{"token": ["{TOKEN}"]}}',
    f'a1 auth {{"token": "{TOKEN} "}}',
    f'a1 auth --nope {{"token": "{TOKEN}"}}',
    f"a1 auth {TOKEN}{'x' * 5000}",
    f"a1 auth {TOKEN} {'x' * (2 << 20)}",
]
OF_STRANGERS = [TOKEN, f"a1 {TOKEN}", f"Bearer {TOKEN}", f'{{"token": "{TOKEN}"}}', f"a1 ping {TOKEN}"]


def has_the_secret(text: str) -> bool:
    """Any part of it that is worth something."""
    return any(SECRET[at : at + 8] in text for at in range(len(SECRET) - 8))


@pytest.mark.parametrize("pieces", [1, 700])
@pytest.mark.parametrize("line", [*WITH_A_SECRET, *OF_STRANGERS], ids=range(len(WITH_A_SECRET) + len(OF_STRANGERS)))
def test_a_stranger_s_token_is_never_logged(
    door: Door, line: str, pieces: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    data = line.encode() + b"\n"
    for at in range(0, len(data), len(data) // pieces + 1):
        door.broker.feed(door.client, data[at : at + len(data) // pieces + 1])
    door.heard()
    door.broker.disconnect(door.client)
    door.broker.close()
    assert caplog.records or door.asked
    assert not has_the_secret(caplog.text)


@pytest.mark.parametrize("line", WITH_A_SECRET, ids=range(len(WITH_A_SECRET)))
def test_nor_is_that_of_one_who_is_known(door: Door, line: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    door.say(b"a0 auth boss.token")
    door.decide(EVERYTHING)
    caplog.clear()
    assert door.say(line.encode())
    assert caplog.records
    assert not has_the_secret(caplog.text)


@pytest.mark.parametrize("line", WITH_A_SECRET, ids=range(len(WITH_A_SECRET)))
def test_nor_where_nobody_asks(line: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    broker = Broker()
    client = broker.connect(PEER)
    broker.feed(client, line.encode() + b"\n")
    assert client.pending()
    assert not has_the_secret(caplog.text)


@pytest.mark.parametrize(
    "line", [b" " * (1 << 19), b"a " * (1 << 19), b"a" * (1 << 20), b"\t" * 5000 + b"auth"], ids=range(4)
)
def test_no_line_takes_long_to_be_told_of(line: bytes) -> None:
    """The test's own time limit would end it."""
    broker = Broker()
    client = broker.connect(PEER)
    broker.feed(client, line + b"\n")
    assert b" error " in client.pending()


def test_a_fault_in_an_auth_does_not_tell_it_either(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    def ask(token: str, _: str, __: Decided) -> None:
        raise RuntimeError(f"of our own, about {token}")

    door.broker.authentication.require_tokens(ask)
    assert is_error(door.say(b"a1 auth " + TOKEN.encode())[0], b"a1")
    assert "RuntimeError" in caplog.text
    assert door.hung_up == [door.client]
    assert not has_the_secret(caplog.text)


def test_figures_have_the_name_of_a_token_and_no_more(door: Door) -> None:
    door.say(b"a1 auth " + TOKEN.encode())
    door.decide(Rights("worker", eval=True, admin=True, proof="hash of it"))
    asked = (
        b"e1 _eval [c.token for c in state.clients.values()]",
        b"e2 _eval str(state.clients)",
        b'e3 _eval {"code": "state.clients"}',
        b"e4 _eval state.clients",
        b"s1 stats",
    )
    answers = [answer for line in asked for answer in door.say(line)]
    assert len(answers) == len(asked)
    assert answers[0] == b"e1 ok ['worker']"
    text = b" ".join(answers).decode()
    assert not has_the_secret(text)
    assert "hash of it" not in text


# ── who speaks another protocol ──

OF_BROWSERS = [
    b"POST / HTTP/1.1\r", b"GET /api/state HTTP/1.1\r", b"OPTIONS * HTTP/1.1", b"PRI * HTTP/2.0\r",
    b"POST /a\tb HTTP/1.1",
    b"GET http://127.0.0.1/ HTTP/1.1", b"Host: 127.0.0.1:25000\r", b"host: ping", b"GET /" + b"x" * (1 << 20),
]  # fmt: skip


@pytest.mark.parametrize("line", OF_BROWSERS, ids=range(len(OF_BROWSERS)))
def test_who_speaks_http_is_told_once_and_nothing_after_it_is_heard(line: bytes) -> None:
    broker = Broker()
    hung_up: list[Client] = []
    broker.connections.attach(FakeSockets(hang_up=hung_up.append))
    client = broker.connect("127.0.0.1:1")
    broker.feed(client, line + b"\nHost: localhost\r\nContent-Length: 10\r\n\r\nm1 publish e1 d1\nx2 rebind q e1\n")
    broker.turn()
    assert masked(client.pending()) == masked(b"- error 20261231235959123456uN1q\n")
    assert hung_up == [client]
    broker.feed(client, b"m2 publish e1 d1\n")
    broker.turn()
    assert not broker.queues.by_name and not broker.core.router.published


def client_hello() -> bytes:
    hello = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
    return hello.read()


OF_TLS = {
    "what Python says": client_hello(),
    "requests in a session id": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a newline in its length": b"\x16\x03\x01\n\n\x01\x00\n\x06\x03\x03",
    "longer than a line may be": b"\x16\x03\x01" + b"x" * (1 << 20),
}


@pytest.mark.parametrize("hello", OF_TLS.values(), ids=OF_TLS)
def test_who_speaks_tls_to_a_plain_port_is_told_once_and_nothing_of_it_is_heard(
    hello: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    hung_up: list[Client] = []
    broker.connections.attach(FakeSockets(hang_up=hung_up.append))
    client = broker.connect("127.0.0.1:1")
    broker.feed(client, hello + b"\nm1 publish e1 d1\nx2 rebind q e1\n")
    broker.turn()
    assert masked(client.pending()) == masked(b"- error 20261231235959123456uN1q\n")
    assert hung_up == [client]
    assert not broker.queues.by_name and not broker.core.router.published
    assert caplog.text.count("it speaks TLS to a plain port") == 1


def test_only_the_first_line_can_be_of_tls() -> None:
    broker = Broker()
    client = broker.connect("127.0.0.1:1")
    broker.feed(client, b"p1 ping\n\x16\x03 ping\n")
    assert client.pending() == b"p1 ok \n\x16\x03 ok \n"


def test_a_request_may_be_named_like_a_method() -> None:
    broker = Broker()
    client = broker.connect("127.0.0.1:1")
    broker.feed(client, b"GET ping / HTTP/1.1\nPOST publish --confirm e1 / HTTP/1.1\nDELETE delete_queue --confirm q\n")
    assert client.pending() == b"GET ok / HTTP/1.1\nPOST ok \nDELETE ok \n"
