"""Random requests for the broker: every action with every flag, from alphabets so small that all collides.

Hypothesis strategies of lines without their newline; nothing here knows the broker.
"""

import json
from typing import Any

from hypothesis import strategies as st

Requests = st.SearchStrategy[bytes]


def words(*parts: Requests | bytes) -> Requests:
    """The parts with one space between them; empty ones leave no space."""
    strategies = [st.just(part) if isinstance(part, bytes) else part for part in parts]
    return st.tuples(*strategies).map(lambda drawn: b" ".join(filter(None, drawn)))


def any_of(*choices: bytes) -> Requests:
    return st.sampled_from(choices)


def some(choice: Requests, at_least: int = 0, at_most: int = 2) -> Requests:
    return st.lists(choice, min_size=at_least, max_size=at_most).map(b" ".join)


def weighted(*choices: tuple[int, Requests]) -> Requests:
    """One of the strategies, each as often as its weight says (`one_of` ignores repetitions)."""
    wheel = [strategy for weight, strategy in choices for _ in range(weight)]

    @st.composite  # which also keeps the strategy's name short, where Hypothesis writes it
    def one(draw: st.DrawFn) -> bytes:
        return draw(draw(st.sampled_from(wheel)))

    return one()


# A word that stands here twice comes twice as often: most of the traffic meets in q1 and e1.
CONSUMERS = any_of(b"c1", b"c1", b"c2", b"c3")
IDS = any_of(b"m1", b"m2", b"m3", b"c1")
QUEUES = any_of(b"q1", b"q1", b"q1", b"q2", b"q3")
EVENTS = any_of(b"e1", b"e1", b"e1", b"e2", b"a.x", b"a.y", b"b.x.z")
MASKS = any_of(b"a.*", b"*.x", b"*.*.z", b"b.*", b"*", b"e*", b"a.x", b"*.*")
SECONDS = any_of(
    b"", b"=0", b"=0.0", b"=1", b"=2.5", b"=0.3333333333333333", b"=.5", b"=1.", b"=1e0", b"=1e-05", b"=1e300"
)
CONFIRM = any_of(b"", b"--confirm")
LIMIT = any_of(  # lifted as often as set, so that most queues take what comes
    b"--max-length=0", b"--max-length=0", b"--max-length=1", b"--max-length=3", b"--max-bytes=0", b"--max-bytes=0",
    b"--max-bytes=40", b"--max-bytes=150", b"--overflow=reject", b"--overflow=drop-oldest",
)  # fmt: skip
PREFETCH = any_of(b"--prefetch=0", b"--prefetch=1", b"--prefetch=2")
DATA = any_of(
    b"", b"d", b" ", b"x y ", b"1", b"1.0", b"true", b"NaN", b'"d"', b"{}", b'{"k": 1}', b'{"k": 1, "z": 2}',
    b"[1]", b"[1.0]", b" [1] ", b"\xff\xc3", "ключ".encode(), b"a\rb", b"--confirm", b"1e2", b"x" * 60,
    b"y" * 150,
)  # fmt: skip

MESSAGE_FLAGS = any_of(
    b"", b"", b"", b" --confirm", b" --confirm", b" --once", b" --once --confirm", b" --confirm --once=s", b" --once=s",
    b" --once=t",
)  # fmt: skip
PUBLISH = st.tuples(IDS, MESSAGE_FLAGS.map(b"publish".__add__), EVENTS, DATA).map(b" ".join)

CONSUME = words(
    CONSUMERS,
    b"consume",
    some(any_of(b"--confirm", b"--manual-ack"), at_most=1),
    QUEUES,
    some(EVENTS),
    some(
        st.one_of(
            words(b"--add", some(EVENTS, at_least=1)),
            st.tuples(st.just(b"--delete-queue-when-unused"), SECONDS).map(b"".join),
            PREFETCH,
            LIMIT,
            any_of(b"--manual-ack", b"--confirm"),
        ),
        at_most=3,
    ),
    some(EVENTS, at_most=1),
)

REBIND = words(
    IDS,
    b"rebind",
    CONFIRM,
    QUEUES,
    some(EVENTS),
    some(
        st.one_of(
            words(any_of(b"--add", b"--remove"), some(EVENTS, at_least=1)),
            words(b"--remove-mask", some(MASKS, at_least=1)),
            LIMIT,
        ),
        at_most=3,
    ),
)

SETTLE = words(IDS, any_of(b"ack", b"reject"), CONSUMERS, st.one_of(IDS, st.just(b"--all")), CONFIRM)

PING = st.tuples(IDS, st.just(b"ping"), DATA).map(b" ".join)
SUBSCRIBE = words(IDS, b"subscribe", QUEUES, some(EVENTS, at_least=1), CONFIRM, some(LIMIT, at_most=1))
DELETE_CONSUMER = words(IDS, b"delete_consumer", CONFIRM, CONSUMERS)
PAUSE = words(IDS, any_of(b"pause", b"resume", b"resume"), CONFIRM, CONSUMERS)
DELETE_QUEUE = words(IDS, b"delete_queue", CONFIRM, QUEUES)
DELETE_UNUSED = words(
    IDS, b"delete_queue", QUEUES, st.tuples(st.just(b"--when-unused"), SECONDS).map(b"".join), CONFIRM
)

# SEVX: the same names in JSON

SENT: list[bytes] = [
    b"{}", b"{ }", b'{"event": "e1"}', b'{"event": "e1", "k": 1}', b'{"k": 1.0}', b'{ "k": 1e0 , "z": 2}',
    b'{"k": true}', b'{"k": "1"}', b'{"k": null}', b'{"k": [1, {"z": 1}]}', b'{"k": [1.0, {"z": 1}]}',
    b'{"k": {"z": {}}}', b'{"event": "a.x", "data": {"k": 1, "z": [1]}}', b'{"event": "a b"}',
    b'{"event": 5}', b'{"event": "e1,retry=1"}', b'{"event": ""}', b'{"data": "d", "retry": 7}',
    b'{"data": 1}', '{"k": "ключ"}'.encode(), b'{"k": 0, "k": 1}', b'{"event": "\\u0065\\u0031", "k": 2}',
]  # fmt: skip

PATTERNS: list[dict[str, Any]] = [
    {}, {"event": "e1"}, {"event": "a.x"}, {"k": 1}, {"k": 1.0}, {"k": True}, {"k": "1"}, {"k": None},
    {"data": {}}, {"data": {"k": 1}}, {"data": "d"}, {"data": 1}, {"data": [1]},
    {"event": "e1", "data": {"k": 1}}, {"k": [1, {"z": 1}]}, {"k": {"z": {}}}, {"k": {}}, {"k": 1, "z": 2},
    {"k": "ключ"}, {"event": 5},
]  # fmt: skip


def json_of(**parts: st.SearchStrategy[Any]) -> Requests:
    return st.fixed_dictionaries(parts).map(lambda drawn: json.dumps(drawn).encode())


def text(names: Requests) -> st.SearchStrategy[str]:
    return names.map(bytes.decode)


SEND = words(
    IDS, b"send", any_of(b"", b"--confirm", b"--once", b"--confirm --once=s"), st.sampled_from(SENT), any_of(b"", b" ")
)

RECV = words(
    CONSUMERS,
    b"recv",
    st.one_of(PREFETCH, CONFIRM, LIMIT, st.just(b"")),
    st.fixed_dictionaries(
        {"queue": text(QUEUES), "pattern": st.sampled_from(PATTERNS)},
        optional={
            "manual_ack": st.booleans(),
            "delete_queue_when_unused": st.sampled_from([False, False, None, True, 0, 1, 2.5, 1 / 3, 1e-20]),
        },
    ).map(lambda drawn: json.dumps(drawn).encode()),
)

SEVX_SETTLE = words(
    IDS,
    any_of(b"ack", b"reject"),
    CONFIRM,
    st.one_of(
        json_of(receiver_id=text(CONSUMERS), event_id=text(IDS)),
        json_of(receiver_id=text(CONSUMERS), all=st.just(True)),
    ),
)
SEVX_DELETE_QUEUE = words(IDS, b"delete_queue", json_of(queue=text(QUEUES)))
DELETE_RECEIVER = words(IDS, b"delete_receiver", json_of(receiver_id=text(CONSUMERS)))
SEVX_PING = words(IDS, b"_ping", json_of(data=st.sampled_from(PATTERNS)))

BAD: list[bytes] = [
    b"", b" ", b"   ", b"\r", b"\t", b"\0", b"x", b"x ", b"x  ping", b" x ping", b"- ping", b"-- ping",
    b"--x ping y", b"{x ping", b"x\ty ping", b"x\0 ping", b"x\ry ping", b"\xff ping \xfe", b"x ping a\tb",
    b"x ping a\0", b"-x ping", b"x nope", b"x PING", b"x ping\r", b"x auth {}", b"x auth", b"x auth t",
    b"x auth  t ", b"x auth --confirm t", b"x auth a b", b'x auth {"token": "t"}', b'x auth {"token": 5}',
    b'x auth --confirm {"token": "t"}', b'x auth --nope {"token": "t"}', b"x update q1", b"x publish",
    b"x publish ", b"x publish  e1 d", b"x publish --confirm", b"x publish --nope e1", b"x publish - d",
    b"x publish {e1 d", b"x publish e1,retry=1 d", b"x publish e1,retry= d", b"x publish e\r1 d",
    b"x publish --confirm --confirm e1", b"x publish --once= e1 d", b"x publish --once", b"x publish --once e1",
    b"x publish --once --once e1 d", b"x publish --once=- e1 d", b"x publish --once=--s e1 d",
    b"x publish --once={ e1 d", b"x publish --once --confirm --once e1", b"x publish --once=a=b e1 d",
    b"x publish --once=a{ e1 d", b"x publish --onc e1", b"x publish --once=-s e1 d", b"x publish --onces e1 d",
    b"x publish --once e1,retry=1 d", b"x publish --once=s  e1 d", b"x publish --once=s\r e1 d",
    b"x send --once= {}", b"x send --once=a{b {}", b"x send --once={ {}", b"x send --once{}",
    b"x send --once --once {}", b"x send --once=s  --confirm {}", b"x send --once=s nope {}",
    b"x publish e1\td", b"c1 consume", b"c1 consume --confirm",
    b"c1 consume --add e1 q1", b"c1 consume q1 --nope", b"c1 consume -", b"c1 consume q1 --prefetch",
    b"c1 consume q1 --prefetch=", b"c1 consume q1 --prefetch=-1", b"c1 consume {q1",
    b"c1 consume q1 --prefetch=x", b"c1 consume q1 --prefetch=1.5", b"c1 consume q1 --manual-ack=1",
    b"c1 consume q1 --delete-queue-when-unused=", b"c1 consume q1 --delete-queue-when-unused=-1",
    b"c1 consume q1 --delete-queue-when-unused=nan", b"c1 consume q1 --delete-queue-when-unused=inf",
    b"c1 consume q1 --delete-queue-when-unused=1_0", b"c1 consume q1 --delete-queue-when-unused=1e999",
    b"x delete_queue q1 --when-unused=.", b"x delete_queue q1 --when-unused=1e", b"x delete_queue q1 --when-unused=+1",
    b"x delete_queue q1 --when-unused=\xd9\xa1", b"x subscribe q1 e1 {", b"x consume q1 --manual-ack --manual-ack",
    b"x ack c1 m1 --confirm --confirm", b"x publish --confirm --once --confirm e1 d", b"x  ack  c1  m1 ",
    b"x delete_queue  q1  --when-unused=1 ", b"x delete_queue --when-unused q1", b"x consume --manual-ack q1",
    b"x rebind q1 --max-length=1 --max-length=1", b"x rebind q1 --remove e1 --add e2 --remove e3",
    b'x send --confirm --confirm {}', b'c1 recv --prefetch=1 --prefetch=1 {"queue": "q1", "pattern": {}}',
    b'c1 recv {"queue": "q1", "pattern": {}, "delete_queue_when_unused": 1' + b"0" * 200 + b"}",
    b'c1 recv {"queue": "q1", "pattern": {}, "delete_queue_when_unused": 1e300}',
    b"c1 consume q1 --max-length", b"c1 consume q1 --max-length=-1", b"x rebind q1 --max-bytes=x e1",
    b"x rebind q1 --overflow", b"x rebind q1 --overflow= e1", b"x rebind q1 --overflow=drop e1",
    b"x subscribe q1 e1 --max-length=2 --prefetch=2", b"x publish --max-length=2 e1 d",
    b'c1 recv --overflow=x {"queue": "q1", "pattern": {}}', b"c1 consume q1 --remove e1",
    b"c1 consume q1 e1,retry=5", b"c1 consume q\r1", b"  c1 consume q1",
    b"c1 consume  q1   e1  --confirm ", b"x rebind", b"x rebind q1 --manual-ack", b"x rebind q1 --add=e1",
    b"x rebind q1 --add e1 --add e2 --confirm", b"x rebind q1 --confirm --confirm", b"x subscribe q1", b"x subscribe",
    b"x subscribe q1 --add e1", b"x ack", b"x ack c1", b"x ack c1 m1 m2", b"x ack c1 m1 --all",
    b"x ack --all", b"x reject c1 -", b"x ack c1 --al", b"x delete_consumer", b"x delete_consumer c1 c2",
    b"x delete_queue", b"x delete_queue q1 q2", b"x delete_queue q1 --when-unused=x",
    b"x delete_queue q1 --all", b"x send", b"x send []", b"x send 1", b"x send {", b"x send {}}",
    b'x send {"k": NaN}', b'x send {"k": -Infinity}', b'x send {"k": "\xff"}', b"x send x{}",
    b"x send --nope {}", b"x send --confirm{}", b'x send {"k": 1} x', b"x send  {}  ", b"c1 recv",
    b"c1 recv {}", b'c1 recv {"queue": "q1"}', b'c1 recv {"pattern": {}}',
    b'c1 recv {"queue": "q1", "pattern": []}', b'c1 recv {"queue": 1, "pattern": {}}',
    b'c1 recv {"queue": "a b", "pattern": {}}', b'c1 recv {"queue": "", "pattern": {}}',
    b'c1 recv {"queue": "\\ud800", "pattern": {}}', b'c1 recv {"queue": "q1", "pattern": {}, "x": 1}',
    b'c1 recv {"queue": "q1", "pattern": {}, "manual_ack": 1}',
    b'c1 recv {"queue": "q1", "pattern": {}, "delete_queue_when_unused": -1}',
    b'c1 recv {"queue": "q1", "pattern": {}, "delete_queue_when_unused": "1"}',
    b'c1 recv --manual-ack {"queue": "q1", "pattern": {}}',
    b'c1 recv --prefetch=x {"queue": "q1", "pattern": {}}', b'x ack {"receiver_id": "c1"}',
    b'x ack {"receiver_id": "c1", "all": false}', b"x ack {", b'x ack {"event_id": "m1"}',
    b'x ack {"receiver_id": "c1", "event_id": "m1", "all": true}',
    b'x reject {"receiver_id": 1, "event_id": "m1"}', b"x delete_queue {}", b'x delete_queue {"queue": null}',
    b"x delete_receiver c1", b"x delete_receiver {}", b"x _ping", b"x _ping {}",
    b'x _ping {"data": 1, "x": 2}', b'x  _ping {"data": 1}', b"x ping " + b"y" * 400, b"y" * 400,
    b"x publish e1 " + b"y" * 287, b"x publish e1 " + b"y" * 288, b"y\t" * 200,
]  # fmt: skip

EARLY = weighted(  # what a client of the early spec sends
    (2, words(IDS, b"subscribe", QUEUES, some(EVENTS, at_least=1))),
    (2, words(CONSUMERS, b"consume", QUEUES, any_of(b"", b"--manual-ack"))),
    (1, words(IDS, b"publish", EVENTS, b"d")),
    (1, words(IDS, any_of(b"ack", b"reject"), CONSUMERS, st.one_of(IDS, st.just(b"--all")))),
    (1, words(IDS, b"delete_consumer", CONSUMERS)),
    (1, words(IDS, b"delete_queue", QUEUES)),
    (1, words(IDS, b"delete_queue", QUEUES, st.tuples(st.just(b"--when-unused"), SECONDS).map(b"".join))),
    (1, any_of(b"x ping d", b"x auth t", b'x auth {"token": "t"}')),
)
MESSAGES = weighted((3, PUBLISH), (1, SEND))
JOINS = weighted((2, CONSUME), (1, RECV))
REQUESTS = weighted(
    (4, MESSAGES), (3, JOINS), (2, SETTLE), (1, SEVX_SETTLE), (4, REBIND), (1, SUBSCRIBE),
    (2, DELETE_CONSUMER), (2, PAUSE), (1, DELETE_RECEIVER), (1, DELETE_QUEUE), (1, SEVX_DELETE_QUEUE),
    (1, DELETE_UNUSED), (1, PING), (1, SEVX_PING), (4, st.sampled_from(BAD)),
)  # fmt: skip
