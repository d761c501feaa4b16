"""The model by itself: a few dialogues whose answers are plain from the specs, so that it can be trusted."""

import pytest

from tests.model import ERROR, Model
from tests.model_queues import Connection
from tests.model_words import equal, mask_matches, matches

Dialogue = list[tuple[str, list[str]]]


class Talk:
    """One model on a clock that stands still until it is told otherwise."""

    def __init__(self, high_water: int = 1 << 18) -> None:
        self.now = 0.0
        self.model = Model(max_line=100, high_water=high_water, clock=lambda: self.now)

    def say(self, connection: Connection, *requests: str) -> list[str]:
        """All that the connection gets, in this turn, after these requests."""
        self.model.feed(connection, "".join(request + "\n" for request in requests).encode())
        self.model.turn()
        return self.take(connection)

    def take(self, connection: Connection) -> list[str]:
        text = connection.pending()
        self.model.sent(connection, len(text))
        return text.decode().split("\n")[:-1]


DIALOGUES: dict[str, Dialogue] = {
    "hello world": [
        ("Alice consume greetings hi hello", []),
        ("Bob consume greetings hi hello", []),
        ("Charlie consume all hi hello bye", []),
        (
            "Dave publish hello world",
            ["Alice ok Dave event=hello world", "Charlie ok Dave event=hello world"],
        ),
        ("Eve publish hi", ["Bob ok Eve event=hi ", "Charlie ok Eve event=hi "]),
    ],
    "manual ack": [
        ("c1 consume --confirm q e --manual-ack", ["c1 ok "]),
        ("m1 publish e d", ["c1 ok m1 event=e d"]),
        ("r1 reject c1 m1", ["c1 ok m1 event=e,retry=1 d"]),
        ("r1 reject c1 --all --confirm", ["r1 ok ", "c1 ok m1 event=e,retry=2 d"]),
        ("a1 ack c1 m1", []),
        ("r1 reject c1 m1", []),
        ("r1 reject c1 m1 --all", [f"r1 error {ERROR.decode()}"]),
    ],
    "rebind and update": [
        ("c1 consume q e1 --delete-queue-when-unused=5 --manual-ack", []),
        (
            "r rebind --confirm q a.x.1 a.y.2 e --remove e --remove-mask a.*.1 --add b",
            ["c1 ok --update q a.y.2 b --delete-queue-when-unused=5.0 --manual-ack", "r ok "],
        ),
        ("r rebind q a.y.2 b", []),
        ("c1 consume q --add e2 --confirm", ["c1 ok --update q a.y.2 b e2", "c1 ok "]),
        ("r rebind q", ["c1 ok --update q"]),
        ("d delete_queue q --confirm", ["c1 ok --update q", "d ok "]),
    ],
    "sevx": [
        ('c1 recv {"queue": "q", "pattern": {"data": {"id": 1}}, "manual_ack": true}', ["c1 ok "]),
        ('s1 send {"data": {"id": 1.0, "x": 2}}', ["s1 ok ", 'c1 ok s1 {"data": {"id": 1.0, "x": 2}}']),
        ('s2 send {"data": {"id": true}}', ["s2 ok "]),
        (
            'r1 reject {"receiver_id": "c1", "event_id": "s1"}',
            ["r1 ok ", 'c1 ok s1 {"retry": 1, "data": {"id": 1.0, "x": 2}}'],
        ),
        ('m1 publish e {"id": 1}', ['c1 ok m1 {"event": "e", "data": {"id": 1}}']),
        ('a1 ack {"receiver_id": "c1", "all": true}', ["a1 ok "]),
        ('p1 _ping {"data": "x"} ', ['p1 ok {"data": "x"}']),
    ],
    "lines": [
        ("", []),
        ("p ping", ["p ok "]),
        ("p ping --confirm a  b", ["p ok a  b"]),
        ("-- ping", [f"- error {ERROR.decode()}"]),
        ("p ping " + "x" * 94, [f"p error {ERROR.decode()}"]),
        ("p ping " + "x" * 93 + "\r", ["p ok " + "x" * 93]),
        ("p ping a\tb", [f"p error {ERROR.decode()}"]),
    ],
}


@pytest.mark.parametrize("dialogue", DIALOGUES.values(), ids=DIALOGUES)
def test_dialogue(dialogue: Dialogue) -> None:
    talk = Talk()
    connection = talk.model.connect()
    for request, replies in dialogue:
        assert talk.say(connection, request) == replies, request


def test_full_buffer_and_disconnect() -> None:
    talk = Talk(high_water=1)
    slow, other = talk.model.connect(), talk.model.connect()
    talk.model.feed(slow, b"c1 consume q e\n")
    talk.model.feed(other, b"m1 publish e 1\nm2 publish e 2\n")
    talk.model.turn()
    assert slow.pending() == b"c1 ok m1 event=e 1\n"
    talk.model.sent(slow, 5)
    talk.model.disconnect(slow)
    assert talk.say(other, "c2 consume q") == ["c2 ok m1 event=e 1"]
    assert talk.say(other) == ["c2 ok m2 event=e 2"]


def test_unacked_messages_return_to_their_old_place() -> None:
    talk = Talk()
    first, second = talk.model.connect(), talk.model.connect()
    deliveries = ["c ok m1 event=e ", "c ok m2 event=e ", "c ok m3 event=e "]
    publishes = ["m1 publish e", "m2 publish e", "m3 publish e"]
    assert talk.say(first, "c consume q e --manual-ack", *publishes) == deliveries
    talk.say(first, "a ack c m2")
    talk.model.disconnect(first)
    assert talk.say(second, "m4 publish e", "c consume q") == [
        "c ok m1 event=e,retry=1 ",
        "c ok m3 event=e,retry=1 ",
        "c ok m4 event=e ",
    ]


def test_unused_queue_is_deleted_in_time() -> None:
    talk = Talk()
    connection = talk.model.connect()
    talk.say(connection, "c consume q e --delete-queue-when-unused=5", "d delete_consumer c", "m publish e")
    talk.now = 4.0
    talk.model.tick()
    assert list(talk.model.queues) == [b"q"]
    talk.now = 5.0
    talk.model.tick()
    assert not talk.model.queues


@pytest.mark.parametrize(
    ("mask", "event", "expected"),
    [
        (b"*.updated", b"user.updated", True),
        (b"user.*.connected", b"user.1.connected", True),
        (b"*.*.deleted", b"post.1.deleted", True),
        (b"*.deleted", b"post.1.deleted", False),
        (b"*", b"user", False),
        (b"u*r", b"user", False),
    ],
)
def test_mask(mask: bytes, event: bytes, expected: bool) -> None:
    assert mask_matches(mask, event) is expected


@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        ({}, {"a": 1}, True),
        ({"a": 1}, {"a": 1.0, "b": 2}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": None}, {}, False),
        ({"a": {}}, {"a": 1}, False),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, True),
        ({"a": [1, {"b": 1}]}, {"a": [1.0, {"b": 1}]}, True),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}, False),
    ],
)
def test_pattern(pattern: object, value: object, expected: bool) -> None:
    assert matches(pattern, value) is expected


def test_equality_is_of_json_values() -> None:
    assert equal({"a": [1]}, {"a": [1.0]})
    assert not equal([True], [1])
    assert not equal("1", 1)
