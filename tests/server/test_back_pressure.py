"""Clients faster than the broker may remember, or slower than it sends: bounded memory, no deadlock, nothing lost.

Real sockets, with limits so small that all of this happens within a few megabytes. How much memory the broker has
taken, and how much it has read of a client, is asked of the broker all the time.
"""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from tests.running import PATIENCE, Connection, running_broker
from tests.server.test_connections import Control

MEMORY = 4 << 20  # --max-memory
LINE = 64 << 10  # --max-line
HIGH_WATER = 256 << 10  # of a connection's unread bytes: then it gets no more deliveries
CHOKED = 2 * HIGH_WATER + LINE  # then it is not read either
CHUNK = 512 << 10  # more than the broker reads of a connection at a time
SLACK = 2 << 20  # above --max-memory: a chunk or a reply more, and buffers that are half empty
FAR_TOO_MUCH = 64 << 20  # whoever could send this much was never stopped


class Pusher:
    """A client that sends lines as long as its socket takes them, and does not read until it is told to.

    `line(n)` is the n-th one. What the broker has made of it is looked at through `control`.
    """

    def __init__(self, port: int, control: Control, line: Callable[[int], bytes]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.address = "{}:{}".format(*self.socket.getsockname())
        self.lines = 0
        self.sent = 0
        self._control = control
        self._line = line
        self._unsent = b""
        control.until(f"'{self.address}' in state.clients")

    def close(self) -> None:
        self.socket.close()

    def look(self, field: str) -> int:
        return int(self._control.eval(f"state.clients['{self.address}'].{field}"))

    def push(self) -> None:
        """As much as the kernel takes now."""
        self.socket.setblocking(False)
        try:
            while self.sent < FAR_TOO_MUCH:
                if not self._unsent:
                    self._unsent = b"".join(map(self._line, range(self.lines, self.lines + 100)))
                    self.lines += 100
                size = self.socket.send(self._unsent)
                self._unsent = self._unsent[size:]
                self.sent += size
        except BlockingIOError:
            return
        finally:
            self.socket.settimeout(PATIENCE)
        raise AssertionError("it was never slowed down")

    def push_until_not_read(self, condition: str) -> None:
        """Until the condition holds, the kernel takes no more, and the broker reads no more. Memory is bounded."""
        before = None
        while True:
            self.push()
            state = (self.sent, self.look("received"))
            assert int(self._control.eval("state.memory")) <= MEMORY + SLACK
            if state == before and self._control.eval(condition) == "True":
                return
            before = state

    def finish(self) -> list[bytes]:
        """Complete the last line, send no more, and read all that comes."""

        def send() -> None:
            self.socket.sendall(self._unsent)
            self.socket.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        replies = b"".join(iter(lambda: self.socket.recv(1 << 20), b""))
        sender.join()
        return replies.splitlines()


class Reader(threading.Thread):
    """Reads all that comes on a connection, until a line ends in this."""

    def __init__(self, connection: Connection, last: bytes) -> None:
        super().__init__(daemon=True)
        self.connection = connection
        self.last = last
        self.lines: list[bytes] = []
        self.start()

    def run(self) -> None:
        while not self.lines or not self.lines[-1].endswith(self.last):
            self.lines.append(self.connection.line())

    def result(self) -> list[bytes]:
        self.join(PATIENCE)
        assert not self.is_alive(), f"after {len(self.lines)} lines {self.last!r} did not come"
        return self.lines


class World:
    """One broker, a connection to ask it, and others that are closed in the end."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self.port = port
        self._stack = stack
        self.control = stack.enter_context(closing(Control(port)))

    def connection(self) -> Connection:
        return self._stack.enter_context(closing(Connection(self.port)))

    def pusher(self, line: Callable[[int], bytes]) -> Pusher:
        return self._stack.enter_context(closing(Pusher(self.port, self.control, line)))


@pytest.fixture
def flags() -> list[str]:
    """More flags, for tests that need other limits."""
    return []


@pytest.fixture
def world(flags: list[str]) -> Iterator[World]:
    with running_broker(f"--max-memory={MEMORY}", f"--max-line={LINE}", *flags) as broker, ExitStack() as stack:
        yield World(broker.port, stack)


def by_outcome(replies: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The ids of confirmed publishes that were accepted, and of those refused."""
    outcome: dict[bytes, list[bytes]] = {b"ok": [], b"error": []}
    for reply in replies:
        id, ok, _ = reply.split(b" ", 2)
        outcome[ok].append(id)
    return outcome[b"ok"], outcome[b"error"]


def delivered(lines: list[bytes]) -> list[bytes]:
    """The ids of messages as they came, each for the first time."""
    found = [re.match(rb"\S+ ok (\S+) event=e1 ", line) for line in lines]
    return [match[1] for match in found if match]


# ---- Publishers


def test_publisher_is_slowed_then_refused_and_goes_on_when_a_consumer_came(world: World) -> None:
    control = world.control
    assert control.ask("s subscribe --confirm q1 e1") == "s ok "
    pusher = world.pusher(lambda n: b"m%d publish --confirm e1 %s\n" % (n, b"x" * 1000))
    pusher.push_until_not_read(f"state.memory > {MEMORY * 9 // 10}")
    assert control.eval("state.errors") == "0", "slowed down first"
    assert control.ask("p ping others") == "p ok others"
    control.until("state.errors > 0")
    assert int(control.eval("state.memory")) <= MEMORY + SLACK
    waiting = int(control.eval("state.queues['q1'].ready"))
    assert 0 < waiting * 1000 < MEMORY + SLACK

    consumer = world.connection()
    consumer.send(b"c1 consume q1\n")
    reader = Reader(consumer, b" the end")
    accepted, refused = by_outcome(pusher.finish())
    assert len(accepted) >= waiting
    assert refused
    assert sorted(accepted + refused) == sorted(b"m%d" % n for n in range(pusher.lines)), "one reply to each"
    control.until("state.queues['q1'].ready == 0")
    assert control.ask("last publish --confirm e1 the end") == "last ok "
    assert delivered(reader.result()) == [*accepted, b"last"], "all that was accepted comes, in order, and no more"
    assert int(control.eval("state.memory")) <= MEMORY


@pytest.mark.parametrize("prefetch", [0, 10])
def test_consumer_that_publishes_is_read_beyond_the_limit(world: World, prefetch: int) -> None:
    """Its publishes get errors, its acks go through, and then its publishes do."""
    client, control = world.connection(), world.control
    assert client.ask(f"c1 consume --confirm q1 e1 --manual-ack --prefetch={prefetch}") == "c1 ok "
    lines: list[bytes] = []
    number = 0
    while not lines or b" error " not in lines[-1]:
        assert number < 10_000, "it was never refused"
        client.send(b"".join(b"m%d publish --confirm e1 %s\n" % (n, b"x" * 1000) for n in range(number, number + 100)))
        number += 100
        replies = 0
        while replies < 100:
            lines.append(client.line())
            replies += lines[-1].startswith(b"m")
        assert int(control.eval("state.memory")) <= MEMORY + SLACK
    accepted, refused = by_outcome([line for line in lines if line.startswith(b"m")])
    assert control.eval("state.queues['q1'].ready + state.queues['q1'].unacked") == str(len(accepted))
    client.send(b"p ping still read\n")
    while lines[-1] != b"p ok still read":
        lines.append(client.line())

    came = delivered(lines)
    for n in range(len(accepted)):
        while len(came) <= n:
            came += delivered([client.line()])
        client.send(b"a ack c1 %s\n" % accepted[n])
    assert came == accepted
    assert len(accepted) + len(refused) == number
    control.until("state.queues['q1'].unacked == 0")
    assert client.ask("last publish --confirm e1 d") == "last ok "
    assert client.line() == b"c1 ok last event=e1 d"


def test_publisher_that_reads_no_errors_is_not_read(world: World) -> None:
    """Beyond the limit every publish is answered, so a publisher that never reads piles up errors, to a bound."""
    control = world.control
    control.ask("s subscribe --confirm q1 e1")
    filler = world.pusher(lambda n: b"f%d publish e1 %s\n" % (n, b"x" * 1000))
    filler.push_until_not_read(f"state.memory > {MEMORY * 9 // 10}")
    control.until("state.errors > 0")
    pushers = [world.pusher(lambda n: b"m%d publish e1 d\n" % n) for _ in range(3)]
    for pusher in pushers:
        pusher.push()
    control.until("state.errors > 10000")
    assert int(control.eval("state.memory")) <= MEMORY + 2 * SLACK
    assert all(pusher.look("pending") <= CHOKED + 8 * CHUNK for pusher in pushers)
    control.ask("d delete_queue --confirm q1")


# ---- Those who do not read


def test_client_that_does_not_read_its_replies_is_not_read(world: World) -> None:
    control = world.control
    pusher = world.pusher(lambda n: b"p%d ping %s\n" % (n, b"x" * 1000))
    pusher.push_until_not_read(f"any(c.pending > {CHOKED} for c in state.clients.values())")
    assert CHOKED < pusher.look("pending") <= CHOKED + CHUNK
    received = pusher.look("received")
    for n in range(100):
        assert control.ask(f"{n} ping others") == f"{n} ok others"
    assert pusher.look("received") == received
    assert pusher.finish() == [b"p%d ok %s" % (n, b"x" * 1000) for n in range(pusher.lines)]


def test_small_requests_with_large_replies_are_bounded_too(world: World) -> None:
    """A few kilobytes of requests must not make hundreds of megabytes of replies before anybody looks."""
    control = world.control
    control.send(b"".join(b"s subscribe queue%d e%d\n" % (n, n) for n in range(100)))
    reply = len(control.ask("s stats"))
    assert reply > 100 * 100
    greedy = world.connection()
    assert greedy.ask("p ping") == "p ok "
    greedy.send(b"s stats\n" * 2000)
    control.until(f"state.clients['{greedy.address}'].sent > {reply}")
    assert int(control.eval(f"state.clients['{greedy.address}'].pending")) <= CHOKED + 2 * reply
    assert int(control.eval("state.memory")) <= MEMORY + SLACK
    assert all(greedy.line().startswith(b"s ok {") for _ in range(2000))


@pytest.mark.parametrize("flags", [[f"--max-memory={FAR_TOO_MUCH}"]])
def test_consumer_that_does_not_read_gets_no_more_and_the_others_get_the_rest(world: World) -> None:
    lazy, eager, publisher, control = (*(world.connection() for _ in range(3)), world.control)
    assert lazy.ask("lazy consume --confirm q1 e1") == "lazy ok "
    assert eager.ask("eager consume --confirm q1 e1") == "eager ok "
    reader = Reader(eager, b" the end")
    data = b"x" * 10_000
    count = 0

    def publish_hundred() -> None:
        nonlocal count
        publisher.send(b"".join(b"m%d publish e1 %s\n" % (n, data) for n in range(count, count + 100)))
        count += 100
        assert count * len(data) < FAR_TOO_MUCH, "its socket was never full"
        control.until(f"state.queues['q1'].delivered == {count}")

    of_lazy = "[c.delivered for c in state.consumers if c.id == 'lazy'][0]"
    pending = f"state.clients['{lazy.address}'].pending"
    while int(control.eval(pending)) < HIGH_WATER:
        publish_hundred()
    given = int(control.eval(of_lazy))
    for _ in range(5):
        publish_hundred()
        assert HIGH_WATER <= int(control.eval(pending)) <= HIGH_WATER + len(data) + 100
    assert int(control.eval(of_lazy)) == given
    publisher.send(b"m publish e1 the end\n")
    came_to_eager = delivered(reader.result())[:-1]
    came_to_lazy = delivered([lazy.line() for _ in range(given)])
    assert len(came_to_lazy) < len(came_to_eager)
    assert sorted(came_to_lazy + came_to_eager) == sorted(b"m%d" % n for n in range(count))
    for ids in came_to_lazy, came_to_eager:
        assert ids == sorted(ids, key=lambda id: int(id[1:]))
    assert lazy.ask("p ping awake") == "p ok awake"


def test_updates_for_a_consumer_that_does_not_read(world: World) -> None:
    """It gets the first ones, as many as fit, and in the end how things stand now."""
    lazy, control = world.connection(), world.control
    assert lazy.ask("c1 consume --confirm q1") == "c1 ok "
    count = 2000
    events = [b"%d-%s" % (n, b"x" * 10_000) for n in range(count)]
    for start in range(0, count, 100):
        control.send(b"".join(b"r rebind q1 %s\n" % event for event in events[start : start + 100]))
        assert int(control.eval("max(c.pending for c in state.clients.values())")) <= CHOKED + 20_000
        assert int(control.eval("state.memory")) <= MEMORY + SLACK
    lines = [lazy.line()]
    while lines[-1] != b"c1 ok --update q1 " + events[-1]:
        lines.append(lazy.line())
    numbers = [int(re.match(rb"c1 ok --update q1 (\d+)-x+$", line)[1]) for line in lines]  # type: ignore[index]
    assert numbers == sorted(set(numbers))
    assert len(numbers) < count, "some were left out, or nothing was tested"
    assert lazy.ask("p ping that was all") == "p ok that was all"
