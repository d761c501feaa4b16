"""What --update says can be said: its text is the data of a `consume` that asks for the same again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.names import is_event
from tests.broker.driver import PEER

NAMES = st.binary(min_size=1, max_size=6).filter(is_event)
SECONDS = st.one_of(
    st.just(b""),
    st.floats(0, allow_nan=False, allow_infinity=False).map(lambda value: b"=%r" % value),
    st.integers(0, 10**30).map(lambda value: b"=%d" % value),
)
COUNTS = st.integers(0, 10**15 - 1)
STATED = st.fixed_dictionaries(
    {},
    optional={
        b"--delete-queue-when-unused": SECONDS,
        b"--manual-ack": st.just(b""),
        b"--prefetch": COUNTS.map(lambda value: b"=%d" % value),
        b"--max-length": COUNTS.map(lambda value: b"=%d" % value),
        b"--max-bytes": COUNTS.map(lambda value: b"=%d" % value),
        b"--overflow": st.sampled_from([b"=reject", b"=drop-oldest"]),
    },
)


class Talk:
    """A broker with a consumer, c1, and somebody who changes its queue."""

    def __init__(self, data: bytes) -> None:
        self.broker = Broker()
        self.consumer = self.broker.connect(PEER)
        self.other = self.broker.connect(PEER)
        assert self.say(self.consumer, b"c1 consume --confirm " + data) == [b"c1 ok "]

    def say(self, client: Client, line: bytes) -> list[bytes]:
        self.broker.feed(client, line + b"\n")
        return self.heard(client)

    def heard(self, client: Client) -> list[bytes]:
        replies = client.pending()
        self.broker.sent(client, len(replies))
        return replies.split(b"\n")[:-1]

    def updates(self, *requests: bytes) -> list[bytes]:
        """What the consumer is told of these requests, after "--update "."""
        for request in requests:
            assert self.say(self.other, request) == []
        told = self.heard(self.consumer)
        assert all(line.startswith(b"c1 ok --update ") for line in told)
        return [line.removeprefix(b"c1 ok --update ") for line in told]

    def now(self, queue: bytes) -> bytes:
        """The update of today: one of an event that comes and goes."""
        return self.updates(b"r rebind %s --add a-new-event" % queue, b"r rebind %s --remove a-new-event" % queue)[-1]


@settings(deadline=None)
@given(queue=NAMES, events=st.lists(NAMES, max_size=4), stated=STATED, changed=STATED, keeps=st.booleans())
def test_an_update_is_taken_as_consume_and_means_the_same(
    queue: bytes, events: list[bytes], stated: dict[bytes, bytes], changed: dict[bytes, bytes], keeps: bool
) -> None:
    talk = Talk(b" ".join([queue, *events, *(flag + value for flag, value in stated.items())]))
    limits = [
        flag + value for flag, value in changed.items() if flag in (b"--max-length", b"--max-bytes", b"--overflow")
    ]
    talk.updates(b" ".join([b"r rebind", queue, *limits, *([] if keeps else [b"--add e1"])]))
    if b"--delete-queue-when-unused" in changed:
        talk.updates(b"d delete_queue %s --when-unused%s" % (queue, changed[b"--delete-queue-when-unused"]))
    said = talk.now(queue)
    assert Talk(said).now(queue) == said
    (deleted,) = talk.updates(b"d delete_queue " + queue)
    flags = [word for word in said.split(b" ") if word.startswith(b"--")]
    assert deleted == b" ".join([queue, *flags]), "the same flags, and no events"
    assert Talk(deleted).now(queue) == deleted


FLAG = st.sampled_from([
    b"--confirm", b"--confirm", b"--once", b"--once=s", b"--once=", b"--once=--s", b"--once={", b"--once=-",
    b"--confirm=1", b"--onces", b"--confirms", b"--nope", b"--", b"-", b"",
])  # fmt: skip
FLAGS = st.lists(FLAG, max_size=3)
REST = st.sampled_from([b"e1 d", b"e1", b"e1 ", b"-e d", b"e1,retry=1 d", b"{e1 d", b"- d", b"", b"e1 --confirm"])


@settings(deadline=None)
@given(lines=st.lists(st.tuples(FLAGS, REST), min_size=1, max_size=4))
def test_the_compiled_path_of_publish_agrees_with_the_other_one(lines: list[tuple[list[bytes], bytes]]) -> None:
    compiled, plain = Talk(b"q1 e1 -e"), Talk(b"q1 e1 -e")
    for flags, rest in lines:
        line = b" ".join([b"m1", b"publish", *flags, rest])
        compiled.broker.feed(compiled.other, line + b"\n")
        plain.broker.requests.handle(plain.other, line, 0)
    seen = []
    for talk in (compiled, plain):
        talk.broker.turn()
        answers = [line[: line.find(b" error ") + 7] for line in talk.heard(talk.other)]
        core = talk.broker.core
        figures = (core.log.end, core.router.published, len(core.seen), talk.other.early_only)
        seen.append((answers, talk.heard(talk.consumer), figures))
    assert seen[0] == seen[1]
