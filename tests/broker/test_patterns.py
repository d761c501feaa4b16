"""SEVX patterns against a matcher that tries each of them: the index alone, and the broker with it.

Values are few and alike (1, 1.0, true, "1"), and patterns are often cut out of the event, so that most nearly
match. Also patterns and events nested as deeply, and as large, as a line allows.
"""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqks.broker import Broker
from mqks.broker.errors import BadRequest
from mqks.broker.queues.patterns import MOST_VALUES, Pattern, PatternIndex, comparable
from tests.broker.driver import PEER
from tests.broker.on_disk import OnDisk

Object = dict[str, Any]

KEYS = st.sampled_from(["event", "data", "a", "b", ""])
NUMBERS = [0, -0.0, 1, 1.0, -1, 0.5, 5e-324, 2**53, 2**53 + 1, 2.0**53, 10**20, 1e20, int(1e300), 1e300]
SCALARS = st.sampled_from([None, True, False, *NUMBERS, "", "1", "true", "e1", "é"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=5
)
EVENTS = st.dictionaries(KEYS, VALUES, max_size=4)


@st.composite
def cut_out(draw: st.DrawFn, event: Object) -> Object:
    """A pattern made of the event: keys left out, values kept, cut out in turn or replaced."""
    pattern = {}
    for key, value in event.items():
        choice = draw(st.sampled_from(["keep", "keep", "cut", "leave", "replace"]))
        if choice == "replace":
            pattern[key] = draw(VALUES)
        elif choice != "leave":
            pattern[key] = draw(cut_out(value)) if choice == "cut" and isinstance(value, dict) else value
    return pattern


@st.composite
def event_and_patterns(draw: st.DrawFn) -> tuple[Object, list[Object]]:
    event = draw(EVENTS)
    return event, draw(st.lists(cut_out(event) | EVENTS, min_size=1, max_size=6))


# ---- The matcher that tries each


def equal(a: Any, b: Any) -> bool:
    """1 equals 1.0; true, 1 and "1" are three values; lists and objects count as wholes."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return bool(a == b)


def matches(pattern: Object, event: Object) -> bool:
    return all(key in event and _matches_value(value, event[key]) for key, value in pattern.items())


def _matches_value(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(value, dict) and matches(wanted, value)
    return equal(wanted, value)


# ---- The index


@given(event_and_patterns(), st.data())
def test_index_finds_those_that_match(drawn: tuple[Object, list[Object]], data: st.DataObject) -> None:
    event, contents = drawn
    index: PatternIndex[int] = PatternIndex()
    patterns = dict(enumerate(map(Pattern, contents)))
    for number, pattern in patterns.items():
        index.add(pattern, number)
    for gone in data.draw(st.permutations(range(len(contents)))):
        assert sorted(index.wanting(event)) == [n for n in patterns if matches(contents[n], event)]
        # An equal pattern, written another way, takes it out as well.
        index.remove(Pattern(dict(reversed(contents[gone].items()))), gone)
        del patterns[gone]
    assert index.wanting(event) == []
    assert vars(index) == vars(PatternIndex()), "nothing is left of patterns that were removed"


@given(event_and_patterns())
def test_same_pattern(drawn: tuple[Object, list[Object]]) -> None:
    event, contents = drawn
    for content in contents:
        assert Pattern(event).same_as(Pattern(content)) == equal(event, content)
        assert not Pattern(content).same_as(None)


# ---- What it costs


class Read(dict[str, Any]):
    """An event of which it is counted how often one looks at a value."""

    looks = 0

    def __getitem__(self, key: str) -> Any:
        self.looks += 1
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)


def index_of(contents: list[Object]) -> PatternIndex[int]:
    index: PatternIndex[int] = PatternIndex()
    for number, content in enumerate(contents):
        index.add(Pattern(content), number)
    return index


MANY = range(1000)


@pytest.mark.parametrize(
    ("contents", "looks"),
    [
        pytest.param([{"event": f"e1.{n}", "a": 1, f"k{n}": 1} for n in MANY], 1, id="those that name another event"),
        pytest.param([{f"k{n}": 1} for n in MANY], 0, id="keys that it does not have"),
        pytest.param([{"a": 1, f"k{n}": 1, "x": 1} for n in MANY], 1, id="up to the first key that is missing"),
        pytest.param([{"a": 2, "b": n, "c": 3} for n in MANY], 1, id="up to the first value that is another"),
        pytest.param([{"a": 1, "b": n, "c": 3} for n in MANY], 3, id="the same keys with many values"),
    ],
)
def test_many_patterns_look_at_an_event_no_more_than_one(contents: list[Object], looks: int) -> None:
    event = Read({"event": "e1", "a": 1, "b": 2, "c": 3, "x": 1})
    index_of(contents).wanting(event)
    assert event.looks == looks


class Items(list[Any]):
    """A list of which it is counted how often one goes through it."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        self.times += 1
        return super().__iter__()


@pytest.mark.parametrize("inner", [1, MOST_VALUES])
def test_many_patterns_look_into_a_list_no_more_than_one(inner: int) -> None:
    """And none looks into one that has more values than any of them."""
    contents: list[Object] = [{f"k{n}": 1, "list": [n, {"a": [1]}]} for n in MANY]
    looks = []
    for some in (contents[:1], contents):
        deep = Items([1] * inner)
        event = {**fields_of(some), "list": [0, {"a": deep}]}
        assert index_of(some).wanting(event) == ([0] if inner == 1 else [])
        looks.append(deep.times)
    assert looks[0] == looks[1]
    assert bool(looks[0]) == (inner == 1)


def fields_of(contents: list[Object]) -> Object:
    return {key: value for content in contents for key, value in content.items()}


@pytest.mark.parametrize("number", [lambda n: n * (2**61 - 1), lambda n: 2.0 ** (61 * n % 900)], ids=["int", "float"])
@pytest.mark.parametrize("around", [lambda value: value, lambda value: [value]], ids=["alone", "in a list"])
def test_nobody_can_choose_numbers_that_collide(number: Callable[[int], Any], around: Callable[[Any], Any]) -> None:
    """Their own hashes are all the same: to find one of them would take as long as to try each."""
    assert len({hash(number(n)) for n in range(1, 15)}) == 1
    assert len({hash(comparable(around(number(n)))) for n in range(1, 15)}) == 14


# ---- The broker with it


class Exchange:
    """A broker with one receiver for each pattern, each with its own queue."""

    def __init__(self, patterns: list[Object]) -> None:
        self.broker = Broker()
        self.client = self.broker.connect(PEER)
        for number, pattern in enumerate(patterns):
            recv = {"queue": f"q{number}", "pattern": pattern}
            assert self.ask(f"{number} recv {json.dumps(recv)}") == [f"{number} ok "]

    def ask(self, request: str) -> list[str]:
        self.broker.feed(self.client, request.encode() + b"\n")
        self.broker.turn()
        lines = self.client.pending().decode().splitlines()
        self.broker.sent(self.client, self.client.pending_size)
        return lines

    def receivers(self, request: str) -> list[int]:
        """Who gets the message of this request."""
        ok, *deliveries = self.ask(request)
        assert ok == "m1 ok "
        assert all(line.split(" ")[1:3] == ["ok", "m1"] for line in deliveries)
        return sorted(int(line.split(" ")[0]) for line in deliveries)


@given(event_and_patterns())
def test_events_reach_the_queues_whose_patterns_match(drawn: tuple[Object, list[Object]]) -> None:
    event, patterns = drawn
    wanted = [number for number, pattern in enumerate(patterns) if matches(pattern, event)]
    assert Exchange(patterns).receivers(f"m1 send {json.dumps(event)}") == wanted


@given(st.sampled_from(["e1", "1", "é"]), VALUES | st.sampled_from(["{", "NaN", "1e999"]), st.data())
def test_messages_reach_the_queues_whose_patterns_match(name: str, value: Any, data: st.DataObject) -> None:
    """An MQKS message is {"event": …, "data": …} to a pattern; data that is no JSON is a string."""
    text = value if value in ("{", "NaN", "1e999") else json.dumps(value)
    event = {"event": name, "data": value}
    patterns = data.draw(st.lists(cut_out(event) | EVENTS, min_size=1, max_size=6))
    wanted = [number for number, pattern in enumerate(patterns) if matches(pattern, event)]
    assert Exchange(patterns).receivers(f"m1 publish --confirm {name} {text}") == wanted


# ---- Nested deeply


def nested(depth: int, kind: str) -> str:
    return "[" * depth + "1" + "]" * depth if kind == "list" else '{"a":' * depth + "1" + "}" * depth


# Around 950 the interpreter gives up: earlier or later, by how deep the stack is already, so all of them are tried.
DEPTHS = [1, 100, 300, 400, 500, 600, 700, 900, *range(930, 1000), 5000, 100_000]
KINDS = pytest.mark.parametrize("kind", ["list", "object"])


@KINDS
def test_what_was_taken_is_understood_again_at_a_start_however_deep_the_stack_is_there(kind: str) -> None:
    """A start that fails by what a client could send would be a start that fails for ever."""
    durable = OnDisk()
    client = durable.connect()
    durable.say(client, b'r recv {"queue": "q1", "pattern": {}, "delete_queue_when_unused": false}')
    durable.say(client, b'd delete_receiver {"receiver_id": "r"}')
    for depth in DEPTHS:
        durable.say(client, f's send {{"a": {nested(depth, kind)}}}'.encode())
    durable.work()
    taken = durable.queue().ready_count

    def start(frames: int) -> None:
        return start(frames - 1) if frames else durable.crash()

    start(sys.getrecursionlimit() // 4)
    assert durable.queue().ready_count == taken > 0


def test_pattern_nested_too_deeply_is_refused() -> None:
    content: Object = {}
    for _ in range(10_000):
        content = {"a": content}
    with pytest.raises(BadRequest):
        Pattern(content)


def test_event_nested_deeper_than_any_pattern_matches_what_does_not_look_there() -> None:
    value: Any = 1
    for _ in range(10_000):
        value = [value]
    index = index_of([{"a": [1]}, {"b": 1}, {}])
    assert sorted(index.wanting({"a": value, "b": 1})) == [1, 2]


@KINDS
def test_deep_pattern_works_or_is_refused_wholly(kind: str) -> None:
    """It is set or not, as the answer says, also where others have to be told of it; and it harms nobody else."""
    for depth in DEPTHS:
        exchange = Exchange([{"z": 1}, {"event": "e1"}])
        deep = nested(depth, kind)
        lines = exchange.ask(f'r1 recv {{"queue": "q0", "pattern": {{"data": {deep}}}}}')
        accepted = lines[-1] == "r1 ok "
        assert accepted or lines[-1].startswith("r1 error "), depth
        assert len(lines) == 1 + accepted, f"depth {depth}: the other receiver is told exactly if the pattern is set"
        assert len(exchange.broker.queues.by_name[b"q0"].consumers) == 1 + accepted, (
            f"depth {depth}: it is a receiver or not"
        )
        (stats,) = exchange.ask("s1 stats")
        assert stats.startswith("s1 ok "), f"depth {depth}: one client's pattern takes the statistics from all"
        ok, *deliveries = exchange.ask(f"m1 publish --confirm e1 {deep}")
        assert ok == "m1 ok ", depth
        assert {line.split(" ")[0] for line in deliveries} in ([{"0", "1"}, {"r1", "1"}] if accepted else [{"1"}])
        assert "d1 ok " in exchange.ask("d1 delete_queue --confirm q0")
        assert b"q0" not in exchange.broker.queues.by_name


@KINDS
def test_deep_event_is_delivered_or_refused(kind: str) -> None:
    for depth in DEPTHS:
        exchange = Exchange([{"event": "e1"}, {}])
        deep = nested(depth, kind)
        assert exchange.ask("c1 consume --confirm mqks e1") == ["c1 ok "]
        answer, *deliveries = exchange.ask(f'm1 send {{"event": "e1", "data": {deep}}}')
        assert answer == "m1 ok " or answer.startswith("m1 error "), depth
        receivers = ["0", "1", "c1"] if answer == "m1 ok " else []
        assert sorted(line.split(" ")[0] for line in deliveries) == receivers
        assert all(line.endswith(f'{{"event": "e1", "data": {deep}}}') for line in deliveries)


# ---- Large ones


def fields(count: int) -> Object:
    return {f"k{number}": number for number in range(count)}


def items(count: int) -> Object:
    return {"list": list(range(count - 1))}


def objects(count: int) -> Object:
    return {"list": [{} for _ in range(count - 1)]}


def inside(count: int) -> Object:
    return {"data": {"inner": fields(count - 2)}}


Shape = Callable[[int], Object]
SHAPES = pytest.mark.parametrize("shape", [fields, items, objects, inside])


def recv(content: Object, request_id: str = "r1", queue: str = "q1") -> str:
    asked = {"queue": queue, "pattern": content, "delete_queue_when_unused": False}
    return f"{request_id} recv {json.dumps(asked)}"


@SHAPES
def test_a_pattern_has_so_many_values_and_no_more(shape: Shape) -> None:
    """Those in its lists and objects are counted."""
    most, more = shape(MOST_VALUES), shape(MOST_VALUES + 1)
    exchange = Exchange([{"z": 1}, most])
    for queue in ("q0", "q2"):
        (refused,) = exchange.ask(recv(more, queue=queue))
        assert refused.startswith("r1 error ")
    assert list(exchange.broker.queues.by_name) == [b"q0", b"q1"], "what is refused makes no queue"
    assert exchange.receivers(f"m1 send {json.dumps({**most, 'z': 1})}") == [0, 1], "and changes none"
    assert exchange.receivers(f"m1 send {json.dumps(shape(MOST_VALUES - 1))}") == []


@SHAPES
def test_a_start_keeps_a_pattern_with_more_values_than_a_new_one_may_have(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older broker took it. It matches, it may be asked for again, and only another one is refused."""
    durable = OnDisk()
    large, larger = shape(5 * MOST_VALUES), shape(5 * MOST_VALUES + 1)
    with monkeypatch.context() as older:
        older.setattr("mqks.broker.actions.sevx.MOST_VALUES", 10 * MOST_VALUES)
        durable.say(durable.connect(), recv(large).encode())
    durable.work()
    for begin_again in (durable.crash, durable.stop):
        begin_again()
        client = durable.connect()
        durable.say(client, f"s1 send {json.dumps(large)}".encode(), b's2 send {"a": 1}')
        durable.work()
        assert durable.drain() == [f"s1 event= {json.dumps(large)}".encode()]
        durable.said(client)
        (refused,) = durable.say(client, recv(larger, "r2").encode())
        assert refused.startswith(b"r2 error ")
        told = durable.say(client, recv(large, "r3").encode())
        durable.work()
        assert told + durable.said(client) == [b"r3 ok "]
