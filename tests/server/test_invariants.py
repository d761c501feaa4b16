"""Random load over real sockets: what must hold whatever the timing, checked on all that came.

Here nobody can tell in which turn of the broker a request fell, so replies are not compared with the model
but with what was promised: exactly once, at least once, order, nothing invented, no request without its
reply. The load is made by a seeded generator (MQKS_SEED=n for another one, named in a failing test's id).
"""

import os
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import pytest

from tests.running import PATIENCE, Connection, running_broker

SEEDS = [int(os.environ["MQKS_SEED"])] if "MQKS_SEED" in os.environ else [1, 2, 3]
EVENTS = ["e1", "e2", "a.x", "a.y", "b.x.z"]
MESSAGES = 600  # of each publisher


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running_broker() as broker:
        yield broker.port


@pytest.fixture(params=SEEDS)
def rng(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.param)


class Peer(Connection):
    """A connection that sends lines, in pieces cut at random, and can wait until they were all taken."""

    def __init__(self, port: int, rng: random.Random) -> None:
        super().__init__(port)
        self.rng = rng

    def say(self, *requests: str) -> None:
        data = "".join(request + "\n" for request in requests).encode()
        while data:
            size = self.rng.randint(1, 3000)
            self.send(data[:size])
            data = data[size:]

    def until(self, last: str) -> list[str]:
        """The lines up to this one, and without it."""
        lines: list[str] = []
        while (line := self.line().decode()) != last:
            lines.append(line)
        return lines

    def barrier(self) -> list[str]:
        """All that came until the broker has taken every request of this connection."""
        self.say("~ ping barrier")
        return self.until("~ ok barrier")


Connect = Callable[[], Peer]


@pytest.fixture
def connect(port: int, rng: random.Random) -> Iterator[Connect]:
    """Peers that are closed in the end, if not before."""
    peers: list[Peer] = []

    def one() -> Peer:
        peers.append(Peer(port, random.Random(rng.getrandbits(32))))
        return peers[-1]

    yield one
    for peer in peers:
        peer.close()


class Publisher(threading.Thread):
    """Publishes to random events, `{who}-{n}` with n rising, so that order and origin can be read off."""

    def __init__(self, peer: Peer, who: str, prefix: str) -> None:
        super().__init__()
        self.peer = peer
        self.published = [
            (f"{who}-{n}", prefix + self.peer.rng.choice(EVENTS), "d" * self.peer.rng.randint(0, 300))
            for n in range(MESSAGES)
        ]
        self.replies: list[str] = []

    def run(self) -> None:
        self.peer.say(*(f"{msg_id} publish {event} {data}" for msg_id, event, data in self.published))
        self.replies = self.peer.barrier()


class Load:
    """Queues with random events, and publishers; every name has its own prefix: the tests share one broker."""

    def __init__(self, connect: Connect, rng: random.Random) -> None:
        self.prefix = f"{rng.getrandbits(64):x}."
        self.queues = {
            f"{self.prefix}q{n}": [self.prefix + event for event in rng.sample(EVENTS, rng.randint(1, 4))]
            for n in range(4)
        }
        self.publishers = [Publisher(connect(), f"p{n}", self.prefix) for n in range(3)]
        self.published = {row[0]: row for publisher in self.publishers for row in publisher.published}

    def copies(self, queue: str) -> list[str]:
        """The ids that this queue must get."""
        return [msg_id for msg_id, event, _ in self.published.values() if event in self.queues[queue]]

    def publish(self) -> None:
        for publisher in self.publishers:
            publisher.start()

    def join(self) -> None:
        """To wait for publishers; they asked for no reply but the barrier's."""
        for publisher in self.publishers:
            publisher.join()
            assert publisher.replies == []

    def delivered(self, line: str) -> tuple[str, str, int]:
        """consumer_id, msg_id and retry of a delivery, which must be of a message as it was published."""
        consumer_id, ok, msg_id, props, data = line.split(" ", 4)
        event, _, retry = props.removeprefix("event=").partition(",retry=")
        assert (ok, (msg_id, event, data)) == ("ok", self.published[msg_id])
        return consumer_id, msg_id, int(retry or 0)


def test_auto_ack_delivers_each_message_to_each_queue_exactly_once(connect: Connect, rng: random.Random) -> None:
    """Several consumers for each queue, on shared connections, while the publishers publish."""
    load = Load(connect, rng)
    peers = [connect() for _ in range(3)]
    queue_of = {}
    for queue, events in load.queues.items():
        for n in range(rng.randint(1, 4)):
            consumer_id = f"{queue}.c{n}"
            queue_of[consumer_id] = queue
            peer = rng.choice(peers)
            assert peer.ask(f"{consumer_id} consume --confirm {queue} {' '.join(events)}") == f"{consumer_id} ok "
    got: list[tuple[str, str, int]] = []
    lock = threading.Lock()
    wanted = sum(len(load.copies(queue)) for queue in load.queues)
    done = threading.Event()

    def read(peer: Peer) -> None:
        for line in iter(lambda: peer.line().decode(), "~ ok barrier"):
            with lock:
                got.append(load.delivered(line))
                if len(got) >= wanted:
                    done.set()

    readers = [threading.Thread(target=read, args=[peer]) for peer in peers]
    for reader in readers:
        reader.start()
    load.publish()
    load.join()
    assert done.wait(PATIENCE), f"{len(got)} of {wanted} messages came"
    for peer in peers:
        peer.say("~ ping barrier")
    for reader in readers:
        reader.join()
    by_queue: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for consumer_id, msg_id, retry in got:
        assert retry == 0
        by_queue[queue_of[consumer_id]][msg_id] += 1
    for queue in load.queues:
        assert by_queue[queue] == Counter(load.copies(queue))


def test_one_consumer_gets_the_messages_of_each_publisher_in_order(connect: Connect, rng: random.Random) -> None:
    load = Load(connect, rng)
    for queue, events in load.queues.items():
        connect().ask(f"s subscribe --confirm {queue} {' '.join(events)}")
    load.publish()
    for queue in load.queues:
        peer = connect()
        peer.say(f"c consume {queue} --prefetch={rng.randint(0, 9)}")
        got = [load.delivered(peer.line().decode())[1] for _ in load.copies(queue)]
        for publisher in load.publishers:
            own = [row[0] for row in publisher.published]
            came = [msg_id for msg_id in got if msg_id in own]
            assert came == [msg_id for msg_id in load.copies(queue) if msg_id in own]
        assert peer.barrier() == []
    load.join()


def test_manual_ack_delivers_at_least_once_across_disconnects(connect: Connect, rng: random.Random) -> None:
    """Consumers come, ack some, reject some, and go without a word; confirmed acks never come back."""
    load = Load(connect, rng)
    queue, events = next(iter(load.queues.items()))
    connect().ask(f"s subscribe --confirm {queue} {' '.join(events)}")
    load.publish()
    load.join()
    waiting = set(load.copies(queue))
    seen: Counter[str] = Counter()
    while waiting:
        peer = connect()
        prefetch = rng.choice([1, 7, 100, 10_000])
        peer.say(f"c consume {queue} --manual-ack --prefetch={prefetch}")
        held = 0  # neither acked nor rejected: these come only to the next consumer
        for _ in range(rng.randint(1, 400)):
            if held == min(prefetch, len(waiting)):
                break
            _, msg_id, retry = load.delivered(peer.line().decode())
            assert msg_id in waiting, f"{msg_id} came after its ack was confirmed"
            assert retry >= seen[msg_id], "what was seen before says so"
            seen[msg_id] += 1
            if rng.random() < 0.7:
                waiting.remove(msg_id)
                peer.say(f"a ack c {msg_id}")
            elif rng.random() < 0.5:
                peer.say(f"r reject c {msg_id}")
            else:
                held += 1
        for line in peer.barrier():
            _, msg_id, retry = load.delivered(line)
            assert msg_id in waiting
            assert retry >= seen[msg_id]
            seen[msg_id] += 1
        peer.close()
    assert set(seen) == set(load.copies(queue))
    last = connect()
    last.say(f"c consume {queue}", f"end publish {events[0]}")
    assert last.line().decode() == f"c ok end event={events[0]} "


def test_every_request_has_its_reply(connect: Connect, rng: random.Random) -> None:
    """Good, useless and bad requests, each with its own id: one answer to each, and none to anybody else."""
    prefix = f"{rng.getrandbits(64):x}."
    forms = [
        ("ok", "publish --confirm {event} {data}"),
        ("ok", "rebind {queue} {event} --add {event} --remove-mask *.x --confirm"),
        ("ok", "subscribe --confirm {queue} {event}"),
        ("ok", "ack nobody --all --confirm"),
        ("ok", "reject --confirm nobody {data}"),
        ("ok", "delete_consumer --confirm nobody"),
        ("ok", "delete_queue {queue} --confirm --when-unused=60"),
        ("ok", "delete_queue --confirm {queue}"),
        ("ok", "ping {data}"),
        ("ok", 'send {{"event": "{event}"}}'),
        ("ok", '_ping {{"data": "{data}"}}'),
        ("ok", 'delete_queue {{"queue": "{queue}"}}'),
        ("error", "publish"),
        ("error", "publish --nope {event}"),
        ("error", "nope {data}"),
        ("error", "consume"),
        ("error", "rebind {queue} --prefetch=1"),
        ("error", "send {{"),
        ("error", 'recv {{"queue": "{queue}"}}'),
        ("error", "ping a\tb"),
    ]
    peers = [connect() for _ in range(3)]
    wanted: list[dict[str, str]] = [{} for _ in peers]
    for n in range(1500):
        reply, form = rng.choice(forms)
        index = rng.randrange(len(peers))
        values = {"event": prefix + rng.choice(EVENTS), "queue": prefix + rng.choice("qrs"), "data": f"d{n}"}
        wanted[index][f"r{n}"] = reply
        peers[index].say(f"r{n} {form.format(**values)}")
    for peer, replies in zip(peers, wanted, strict=True):
        came = [line.split(" ", 2)[:2] for line in peer.barrier()]
        assert len(came) == len(replies)
        assert dict(came) == replies
        peer.say(*(f"d delete_queue {prefix}{queue}" for queue in "qrs"))
        assert peer.barrier() == []
