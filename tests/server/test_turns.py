"""Turns of the poller, one at a time: whose lines are taken when, and what becomes of those that wait.

The broker is in process, and the test takes its turns; the sockets are real.
"""

import math
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from mqks.broker import Broker
from mqks.broker.actions.consume import COSTLY
from mqks.broker.auth.access import EVERYTHING
from mqks.broker.auth.authentication import Decided
from mqks.broker.connections.client import Client
from mqks.broker.limits import Limits
from mqks.broker.protocol.words import LONG
from mqks.broker.queues.queue import LONG as LONG_QUEUE
from mqks.broker.queues.queue import MANY_EVENTS
from mqks.broker.queues.queue_limits import COSTLY as MEASURED
from mqks.core.sockets import Poller
from tests.broker.on_disk import OnDisk
from tests.running import PATIENCE
from tests.server.test_connections import reset

SHARE = 64  # requests of one connection in a turn
EFFORT = 131072  # queues that its messages go to, likewise
LOOKING = 256  # queues that take as long as a look at patterns,
PLACE = 16  # and as each place that it comes to
LITTLE = 4096  # bytes of a stranger that wait
FEW = 100
NAMES = b" ".join([b"e1"] * (LONG // 2))
RECV = b'v recv {"queue": "%s", "pattern": {"a": "%s"}, "delete_queue_when_unused": false}\n'
COSTLY_LINES = {
    "masks": b"r rebind few --remove-mask%s\n" % (b" *.y" * (COSTLY // FEW)),
    "rebind of a large queue": b"r rebind large --max-length=9\n",
    "consume of a large queue": b"c consume large\n",
    "consume of a large queue with its limits": b"c consume large --max-length=0\n",
    "recv of a large queue": RECV % (b"large", b""),
    "delete_queue of a large queue": b"d delete_queue large --when-unused=9\n",
    "rebind with many names": b"r rebind few --add %s\n" % NAMES,
    "consume with many names": b"c consume few %s\n" % NAMES,
    "subscribe with many names": b"s subscribe few %s\n" % NAMES,
    "recv with a long pattern": RECV % (b"few", NAMES),
    "_eval": b"v _eval 1\n",
    "_eval that is refused": b"v _eval nonsense\n",
    "_eval of SEVX": b'v _eval {"code": "1"}\n',
    "stats": b"v stats\n",
    "history of many events": b"h history latest --events=%s\n" % b",".join([b"e1"] * LONG),
}


def fail(_: Client, error: Exception) -> None:
    raise error


class Turns:
    def __init__(self, limits: Limits | None = None) -> None:
        self.broker = Broker(limits=limits)
        self.poller = Poller(self.broker.core, self.broker.input_ended, self.broker.disconnect, fail, self.broker.pump)
        self.poller.patience = math.inf  # whatever a turn takes on this machine
        self.sockets = ExitStack()

    def pair(self) -> tuple[socket.socket, Client]:
        return self._serve(*socket.socketpair())

    def by_tcp(self) -> tuple[socket.socket, Client]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            near = socket.create_connection(listener.getsockname())
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._serve(near, listener.accept()[0])

    def _serve(self, near: socket.socket, far: socket.socket) -> tuple[socket.socket, Client]:
        self.sockets.enter_context(near)
        near.setblocking(False)
        far.setblocking(False)
        client = self.broker.connect("127.0.0.1:1", far.detach())
        self.poller.add(client)
        return near, client

    def turn(self) -> None:
        self.poller.wait(0)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            self.turn()

    def close(self) -> None:
        for client in list(self.broker.connections.clients):
            self.poller.close(client)
        self.sockets.close()


@pytest.fixture
def turns() -> Iterator[Turns]:
    turns = Turns()
    yield turns
    turns.close()


def answers(near: socket.socket) -> int:
    return near.recv(1 << 20).count(b"\n")


def is_answered(near: socket.socket) -> bool:
    try:
        return answers(near) > 0
    except BlockingIOError:
        return False


def test_one_who_asks_much_does_not_keep_the_others_waiting(turns: Turns) -> None:
    (many, _), (one, _) = turns.pair(), turns.pair()
    many.sendall(b"p ping\n" * (3 * SHARE + 1))
    one.sendall(b"p ping\n")
    turns.turn()
    assert (answers(many), answers(one)) == (SHARE, 1)
    one.sendall(b"p ping\n" * 2)
    turns.turn()
    assert (answers(many), answers(one)) == (SHARE, 2)
    turns.turn()
    turns.turn()
    assert answers(many) == SHARE + 1
    many.sendall(b"p ping\n")
    turns.turn()
    assert answers(many) == 1, "it is read again"


@pytest.mark.parametrize("line", COSTLY_LINES.values(), ids=COSTLY_LINES)
def test_after_a_costly_line_it_is_the_turn_of_others(turns: Turns, line: bytes) -> None:
    """Dozens of them in one turn would keep all others waiting for seconds."""
    (near, client), (other, _) = turns.pair(), turns.pair()
    for name, number in ((b"large", MANY_EVENTS + 1), (b"few", FEW)):
        near.sendall(b"s subscribe %s %s\n" % (name, b" ".join(b"%d.x" % number for number in range(number))))
    turns.until(lambda: client.lines == 2)
    near.sendall(3 * line + b"m publish e2 data\n")
    for number in range(3):
        other.sendall(b"p ping\n")
        turns.turn()
        assert (client.lines, answers(other)) == (3 + number, 1)
    turns.turn()
    assert turns.broker.core.router.published == 1
    near.sendall(b"m publish e2 data\n")
    turns.turn()
    assert turns.broker.core.router.published == 2, "it is read again"


@pytest.mark.parametrize("messages", [MEASURED, MEASURED + 1])
def test_after_the_bytes_of_a_queue_were_counted_it_is_the_turn_of_others(turns: Turns, messages: int) -> None:
    """There may be a million messages. To count few costs little."""
    near, client = turns.pair()
    near.sendall(b"s subscribe q1 e1\n" + b"m publish e1 data\n" * messages)
    turns.turn()
    before = client.lines
    near.sendall(b"r rebind q1 --max-bytes=9999\nr rebind q1 --max-bytes=0\n" * 2)
    taken = []
    for _ in range(3):
        turns.turn()
        taken.append(client.lines - before)
    assert taken == ([1, 3, 4] if messages > MEASURED else [4, 4, 4])


def test_a_queue_that_is_long_to_write_is_large_too() -> None:
    on_disk = OnDisk()
    client = on_disk.connect()
    on_disk.say(client, b"s subscribe q1 " + b"x" * LONG_QUEUE)
    on_disk.broker.feed(client, b"".join(b"r rebind q1 --max-length=%d\n" % number for number in range(10)))
    assert client.lines == 2


def test_usual_requests_about_queues_are_taken_as_others(turns: Turns) -> None:
    near, client = turns.pair()
    events = b" ".join(b"%d" % number for number in range(MANY_EVENTS))
    lines = (b"s subscribe q1 %s\n" % events, b"c consume q1\n", b"r rebind q1 --max-length=9\n", RECV % (b"q2", b""))
    near.sendall(b"".join(lines) * 10)
    turns.turn()
    assert client.lines == 40


def test_publishes_are_taken_all_at_once(turns: Turns) -> None:
    near, client = turns.pair()
    near.sendall(b"m publish e1 data\n" * 1000)
    turns.turn()
    assert turns.broker.core.router.published == client.lines == 1000


def test_publishes_to_many_queues_are_taken_some_at_a_time(turns: Turns) -> None:
    """Each of them is as much work as there are queues."""
    (near, _), (other, _) = turns.pair(), turns.pair()
    for number in range(EFFORT // 8):
        turns.broker.feed(turns.broker.connect("127.0.0.1:2"), b"s subscribe q%d e1\n" % number)
    near.sendall(b"m publish e1 data\n" * 20)
    for taken in (8, 16, 20):
        other.sendall(b"p ping\n")
        turns.turn()
        assert (turns.broker.core.router.published, answers(other)) == (taken, 1)


def test_publishes_that_are_looked_into_are_taken_some_at_a_time(turns: Turns) -> None:
    near, _ = turns.pair()
    near.sendall(b'r1 recv {"pattern": {"data": {"a": 1}}, "queue": "q1"}\n')
    turns.turn()
    near.sendall(b"m publish e1 data\n" * 1000)
    turns.turn()
    assert turns.broker.core.router.published == EFFORT // (LOOKING + PLACE) + 1
    turns.until(lambda: turns.broker.core.router.published == 1000)


@pytest.mark.parametrize("line", [b"m publish e1 %s\n", b's send {"event": "e1", "data": %s}\n'])
def test_many_patterns_that_begin_as_a_message_does_take_their_time(turns: Turns, line: bytes) -> None:
    """None of them matches in the end."""
    near, _ = turns.pair()
    keys = [b'"%d": 1' % number for number in range(EFFORT // PLACE // 4)]
    for number, key in enumerate(keys):
        pattern = b'{"pattern": {"data": {%s, "z": 1}}, "queue": "q%d"}' % (key, number)
        turns.broker.feed(turns.broker.connect("127.0.0.1:2"), b"r recv %s\n" % pattern)
    near.sendall(5 * (line % b"{%s}" % b", ".join(keys)))
    turns.turn()
    assert turns.broker.core.router.published == 4
    turns.turn()
    assert turns.broker.core.router.published == 5


def test_when_a_turn_is_late_the_others_are_the_first_in_those_after_it(turns: Turns) -> None:
    """Here one is enough to be late. Whoever has more to say waits behind those who have not had their turn."""
    turns.poller.patience = 0.0
    many, *few = all_of_them = [turns.pair()[0] for _ in range(4)]
    many.sendall(b"p ping\n" * (6 * SHARE))
    turns.turn()
    assert answers(many) == SHARE
    for near in few:
        near.sendall(b"p ping\n")
    order = []
    for _ in range(6):
        turns.turn()
        order.append([number for number, near in enumerate(all_of_them) if is_answered(near)])
    assert order == [[0, 1], [0], [2], [3], [0], [0]]


def test_when_a_great_many_wait_some_of_them_have_their_turn(turns: Turns) -> None:
    served = [turns.pair() for _ in range(300)]
    for near, client in served:
        turns.broker.core.parser.block(client)
        near.sendall(b"p ping\n")
    for _, client in served:
        turns.broker.core.parser.unblock(client)
    assert len(turns.broker.core.deferred.resumable()) == 256
    assert len(turns.broker.core.deferred.resumable()) == 300 - 256
    assert turns.broker.core.deferred.resumable() == []


@pytest.mark.parametrize("lacking", ["a delivery", "an update"])
def test_what_lacked_memory_goes_on_when_a_send_has_freed_it(turns: Turns, lacking: str) -> None:
    """The send comes last in a turn. Then nothing else happens, and the broker must not wait for it."""
    core = turns.broker.core
    (_, reader), (near, client) = turns.pair(), turns.pair()
    near.sendall(b"s subscribe q1 e1\nm publish e1 data\nc2 consume q2\np pause nobody\n")
    turns.turn()
    ceiling = core.account.ceiling if lacking == "a delivery" else core.account.max_memory
    core.account.charge(ceiling - core.account.used - (32 << 10))
    core.output.say(reader, b"x" * (64 << 10) + b"\n")
    assert core.account.used >= ceiling
    if lacking == "a delivery":
        near.sendall(b"c1 consume q1\n")
    else:
        core.output.tell(client.consumers[b"c2"])
    turns.turn()
    assert core.account.used < ceiling

    ours, theirs = socket.socketpair()
    told: list[bytes] = []

    def listen() -> None:
        near.settimeout(PATIENCE)
        with suppress(TimeoutError):
            told.append(near.recv(1 << 10))
        ours.sendall(b"x")

    with ours, theirs:
        turns.poller.watch(theirs.fileno(), select.EPOLLIN, False)
        listening = threading.Thread(target=listen)
        listening.start()
        assert turns.poller.wait(-1) == [(theirs.fileno(), select.EPOLLIN)]
        listening.join()
    assert told == [b"c1 ok m event=e1 data\n" if lacking == "a delivery" else b"c2 ok --update q2\n"]


@pytest.mark.parametrize("leave", [socket.socket.close, reset], ids=["closes", "resets"])
@pytest.mark.parametrize("line", [b"p ping\n", b"v _eval 1\n"])
def test_one_who_goes_is_heard_to_the_end(turns: Turns, line: bytes, leave: Callable[[socket.socket], None]) -> None:
    """Its replies cannot be sent: that is no reason to drop what it has said and what has not had its turn."""
    near, client = turns.by_tcp()
    near.sendall(line * (5 * SHARE) + b"m publish e1 data\n" * 100)
    leave(near)
    turns.until(lambda: client.gone)
    assert (turns.broker.core.router.published, client.lines) == (100, 5 * SHARE + 100)


def test_what_is_dropped_of_one_who_goes_is_told(caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns(Limits(max_rate=10))
    near, client = turns.by_tcp()
    near.sendall(b"p ping\n" * 20)
    turns.until(lambda: client.blocked > 0)
    reset(near)
    turns.until(lambda: client.gone)
    assert f"{7 * 9} bytes that it had sent are dropped" in caplog.text
    turns.close()


def test_little_of_a_stranger_waits_while_it_is_decided_who_it_is(turns: Turns) -> None:
    asked: list[Decided] = []
    turns.broker.authentication.require_tokens(lambda _, __, decided: asked.append(decided))
    near, client = turns.pair()
    near.sendall(b"a1 auth token\n" + b"m publish e1 data\n" * 3000)
    for _ in range(10):
        turns.turn()
    assert 0 < client.unheard <= LITTLE
    asked.pop()(EVERYTHING)
    turns.until(lambda: client.lines == 3001)
    assert turns.broker.core.router.published == 3000


def test_a_stranger_that_goes_while_it_is_decided_who_it_is_is_let_go(turns: Turns) -> None:
    turns.broker.authentication.require_tokens(lambda *_: None)
    near, client = turns.by_tcp()
    near.sendall(b"a1 auth token\n" + b"m publish e1 data\n" * 3000)
    turns.until(lambda: client.blocked > 0)
    reset(near)
    turns.until(lambda: client.gone)
    assert client.received <= LITTLE
