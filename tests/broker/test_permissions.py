"""Each permission by each action of both dialects, allowed and refused: a table. An action without a row fails.

A row says what its request needs, and no more. From that follows the whole matrix: whoever has just that is allowed;
whoever has everything but one of it is refused, by the name of what is missing; what it does not need may be missing.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from mqks.broker import Broker, actions
from mqks.broker.actions import MQKS, SEVX, SEVX_WHERE_JSON, find
from mqks.broker.actions.sevx import EVENT_TWICE
from mqks.broker.auth.access import EVERYTHING, FROM_AFAR, NOTHING, Rights
from mqks.broker.auth.authentication import MOST_GRANTED, TOLD_ONE_BY_ONE, Decided
from mqks.broker.connections.client import Client
from tests.broker.fake_sockets import FakeSockets

PEER = "192.0.2.1:5000"

# What can be missing, and how the log calls it. `reads_all` is `history` of everything, not of some events.
NAMES = {
    "publish": "publish",
    "queues": "consume.queues",
    "events": "consume.events",
    "manage": "manage",
    "history": "history",
    "reads_all": "history of all events",
    "eval": "eval",
    "admin": "admin",
}
MASKS = ("publish", "queues", "events", "manage", "history")


@dataclass(frozen=True)
class Row:
    line: bytes
    needs: tuple[str, ...] = ()
    fails: str = ""  # for another reason than permissions, which comes after them


# The queue `mail` is there, subscribed to `order.old` and with the pattern {"event": "order.old"}; `new` is not there.
TABLE = [
    # ── MQKS ──
    Row(b"x ping hello"),
    Row(b"x auth worker.any", fails="it has said who it is already"),
    Row(b"x publish order.new", ("publish",)),
    Row(b"x publish order.new data", ("publish",)),
    Row(b"x publish --confirm --once order.new data", ("publish",)),
    Row(b"x consume mail", ("queues",)),
    Row(b"x consume mail order.old", ("queues",)),
    Row(b"x consume mail order.new", ("queues", "events")),
    Row(b"x consume mail --add order.new", ("queues", "events")),
    Row(b"x consume mail --add order.old --delete-queue-when-unused", ("queues", "manage")),
    Row(b"x consume mail --delete-queue-when-unused=5", ("queues", "manage")),
    Row(b"x consume new --delete-queue-when-unused=5", ("queues",)),
    Row(b"x consume new order.new", ("queues", "events")),
    Row(b"x consume new", ("queues",)),
    Row(b"x consume mail --max-length=5", ("queues", "manage")),
    Row(b"x consume mail --max-length=0", ("queues",)),
    Row(b"x consume new --max-length=5 --overflow=drop-oldest", ("queues", "manage")),
    Row(b"x consume new --max-length=0", ("queues",)),
    Row(b"x subscribe mail order.old", ("queues",)),
    Row(b"x subscribe mail order.old --max-bytes=5000", ("queues", "manage")),
    Row(b"x subscribe new order.new --max-bytes=5000", ("queues", "events", "manage")),
    Row(b"x subscribe mail order.new", ("queues", "events")),
    Row(b"x rebind mail", ("manage",)),
    Row(b"x rebind mail --remove order.old", ("manage",)),
    Row(b"x rebind mail --remove-mask *.*", ("manage",)),
    Row(b"x rebind mail --add order.new", ("manage", "events")),
    Row(b"x rebind mail order.old", ("manage",)),
    Row(b"x rebind new order.new", ("manage", "events")),
    Row(b"x delete_queue mail", ("manage",)),
    Row(b"x delete_queue mail --when-unused=5", ("manage",)),
    Row(b"x delete_queue new", ("manage",)),
    Row(b"x delete_consumer c1"),
    Row(b"x pause c1"),
    Row(b"x resume c1"),
    Row(b"x ack c1 m1"),
    Row(b"x ack c1 --all"),
    Row(b"x reject c1 m1"),
    Row(b"x stats", ("admin",)),
    Row(b"x _eval 1 + 1", ("eval",)),
    Row(b"x history earliest", ("history",)),
    Row(b"x history earliest --events=order.*", ("history",)),
    Row(b"x history earliest --raw", ("history", "reads_all"), fails="--raw needs a journal"),
    Row(b"x hold archive 0 --for=60", ("reads_all",), fails="no journal"),
    # ── SEVX ──
    Row(b'x _ping {"data": 1}'),
    Row(b'x auth {"token": "worker.any"}', fails="it has said who it is already"),
    Row(b'x send {"event": "order.new"}', ("publish",)),
    Row(b'x send --once {"event": "order.new", "data": 1}', ("publish",)),
    Row(b'x recv {"queue": "mail", "pattern": {"event": "order.old"}}', ("queues",)),
    Row(b'x recv {"queue": "mail", "pattern": {"event": "order.new"}}', ("queues", "events")),
    Row(b'x recv {"queue": "new", "pattern": {"event": "order.new", "k": 1}}', ("queues", "events")),
    Row(b'x recv --max-length=5 {"queue": "mail", "pattern": {"event": "order.old"}}', ("queues", "manage")),
    Row(b'x recv --max-length=5 {"queue": "new", "pattern": {"event": "order.new"}}', ("queues", "events", "manage")),
    Row(
        b'x recv {"queue": "mail", "pattern": {"event": "order.old"}, "delete_queue_when_unused": true}',
        ("queues", "manage"),
    ),
    Row(b'x recv {"queue": "mail", "pattern": {"event": "order.old"}, "delete_queue_when_unused": false}', ("queues",)),
    Row(
        b'x recv {"queue": "new", "pattern": {"event": "order.new"}, "delete_queue_when_unused": true}',
        ("queues", "events"),
    ),
    Row(b'x delete_queue {"queue": "mail"}', ("manage",)),
    Row(b'x delete_receiver {"receiver_id": "c1"}'),
    Row(b'x ack {"receiver_id": "c1", "event_id": "m1"}'),
    Row(b'x reject {"receiver_id": "c1", "all": true}'),
    Row(b'x _eval {"code": "1"}', ("eval",)),
]


def known_to(rights: Rights) -> tuple[Broker, Client]:
    """A broker with an auth file, and a client whose token has these rights."""
    broker = Broker()

    def ask(_: str, __: str, decided: Decided) -> None:
        decided(rights)

    inside = broker.connect("inside", inside=True)
    broker.feed(inside, b'r1 rebind mail order.old\nc0 recv {"queue": "mail", "pattern": {"event": "order.old"}, ')
    broker.feed(inside, b'"delete_queue_when_unused": false}\nc0 delete_consumer c0\n')
    broker.authentication.require_tokens(ask)
    client = broker.connect(PEER)
    broker.feed(client, b"a1 auth worker.token\n")
    assert client.pending() == b"a1 ok \n"
    broker.sent(client, client.pending_size)
    return broker, client


def asked(rights: Rights, line: bytes, log: pytest.LogCaptureFixture) -> str:
    """Why the request was refused; nothing: it was not."""
    broker, client = known_to(rights)
    log.clear()
    broker.feed(client, line + b"\n")
    broker.turn()
    if b" error " not in client.pending():
        assert not log.records
        return ""
    (told,) = (record.getMessage() for record in log.records)
    (reason,) = re.findall(r""" reason=(?:'([^']*)'|"([^"]*)")""", told)
    return "".join(reason)


def rights_with(needs: tuple[str, ...]) -> Rights:
    """Just these, for the names of the table and for others that its masks have room for."""
    masks = {"publish": ("order.*",), "queues": ("mail", "n*"), "events": ("order.**",), "manage": ("**",)}
    given: dict[str, Any] = {name: masks[name] for name in needs if name in masks}
    if "history" in needs:
        given["history"] = ("order.*",)
    if "reads_all" in needs:
        given["history"] = ("**",)
    given |= {name: True for name in ("eval", "admin") if name in needs}
    return Rights("worker", **given)


def without(missing: str) -> Rights:
    """Everything but this, and of names everything but those of the table."""
    others: dict[str, Any] = dict.fromkeys(MASKS, ("other", "other.**", "order", "mailing", "mail.x", "order.new.x"))
    match missing:
        case "eval" | "admin":
            less: dict[str, Any] = {missing: False}
            return replace(EVERYTHING, **less)
        case "history":
            return replace(EVERYTHING, history=())
        case "reads_all":
            return replace(EVERYTHING, history=("*", "*.**", "order.**"))
    return replace(EVERYTHING, **{missing: others[missing]})


def every_action() -> set[Callable[..., None]]:
    """All that `find` can find: those of the tables, and `_eval` of SEVX, which is in none."""
    tables = (*MQKS.values(), *SEVX.values(), *SEVX_WHERE_JSON.values())
    return {*tables, actions.sevx.eval_}


def found(row: Row) -> Callable[..., None] | None:
    _, name, *data = row.line.split(b" ", 2)
    return find(name, b"".join(data))


def test_every_action_has_a_row() -> None:
    assert {found(row) for row in TABLE} == every_action()
    assert {need for row in TABLE for need in row.needs} == set(NAMES)


def of_table(row: Row) -> str:
    return row.line.decode()


@pytest.mark.parametrize("row", TABLE, ids=of_table)
def test_just_what_it_needs_is_enough(row: Row, caplog: pytest.LogCaptureFixture) -> None:
    reason = asked(rights_with(row.needs), row.line, caplog)
    assert row.fails in reason if row.fails else reason == ""


@pytest.mark.parametrize("missing", NAMES)
@pytest.mark.parametrize("row", TABLE, ids=of_table)
def test_everything_but_one(row: Row, missing: str, caplog: pytest.LogCaptureFixture) -> None:
    reason = asked(without(missing), row.line, caplog)
    if missing in row.needs or (missing == "history" and "reads_all" in row.needs):
        assert reason.startswith("not permitted: "), row
        assert reason.removeprefix("not permitted: ").startswith((NAMES[missing], NAMES["reads_all"]))
    else:
        assert row.fails in reason if row.fails else reason == ""


@pytest.mark.parametrize("row", TABLE, ids=of_table)
def test_nothing_at_all(row: Row, caplog: pytest.LogCaptureFixture) -> None:
    assert asked(replace(NOTHING, name="worker"), row.line, caplog).startswith("not permitted: ") == bool(row.needs)


def test_what_is_refused_changes_nothing() -> None:
    broker, client = known_to(replace(NOTHING, name="worker"))
    for row in TABLE:
        if row.needs:
            broker.feed(client, row.line + b"\n")
    assert list(broker.queues.by_name) == [b"mail"]
    assert broker.queues.by_name[b"mail"].events == {b"order.old"}
    assert broker.core.router.published == 0
    assert not client.consumers


# ── what has no name ──


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        (b"x send {}", "publish"),
        (b'x send {"event": 5}', "publish"),
        (b'x send {"event": "a b"}', "publish"),
        (b'x send {"event": "order.new,retry=1"}', "publish"),
        (b'x recv {"queue": "mail", "pattern": {}}', "events"),
        (b'x recv {"queue": "mail", "pattern": {"k": 1}}', "events"),
        (b'x recv {"queue": "mail", "pattern": {"event": {"k": 1}}}', "events"),
        (b'x recv {"queue": "mail", "pattern": {"event": ""}}', "events"),
    ],
)
def test_what_has_no_name_needs_all(line: bytes, missing: str, caplog: pytest.LogCaptureFixture) -> None:
    some: dict[str, Any] = {missing: ("*", "*.**", "*.*", "order.**")}
    assert asked(replace(EVERYTHING, **some), line, caplog).startswith(f"not permitted: {NAMES[missing]}")
    assert asked(EVERYTHING, line, caplog) == ""


# ── what has two names ──

TWICE = [
    b'x send {"event": "salary", "event": "order.new"}',
    b'x send {"event": "order.new", "event": "order.new"}',
    b'x send --once {"event": {"event": 1}, "a": [{}], "\\u0065vent": "order.new"}',
]


@pytest.mark.parametrize("line", TWICE)
def test_what_has_two_names_needs_all(line: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert asked(replace(EVERYTHING, publish=("order.*",)), line, caplog).startswith(EVENT_TWICE)
    assert asked(EVERYTHING, line, caplog) == ""


def test_the_key_may_be_there_again_deeper(caplog: pytest.LogCaptureFixture) -> None:
    line = b'x send {"data": {"event": 1, "a": {"event": 2}}, "a": 1, "a": 2, "event": "order.new"}'
    assert asked(replace(EVERYTHING, publish=("order.*",)), line, caplog) == ""


def test_history_shows_what_may_be_read_and_nothing_else() -> None:
    rights = Rights("reader", history=("order.*", "mail"))
    broker, client = known_to(rights)
    inside = broker.connect("inside", inside=True)
    broker.feed(
        inside, b'm1 publish order.new 1\nm2 publish salary 2\nm3 publish mail 3\nm4 send {"event": "order.x"}\n'
    )
    broker.feed(inside, b'm5 send {"event": "salary"}\nm6 send {"k": 1}\nm7 publish order.new.x 7\n')
    assert shown(broker, client, b"history earliest") == [b"m1", b"m3", b"m4"]
    assert shown(broker, client, b"history earliest --events=order.new,salary") == [b"m1"]
    assert shown(broker, client, b"history earliest --events=salary") == []


def shown(broker: Broker, client: Client, request: bytes) -> list[bytes]:
    broker.feed(client, b"h " + request + b"\n")
    broker.turn()
    lines = client.pending().splitlines()
    broker.sent(client, client.pending_size)
    assert lines[-1].startswith(b"h ok --end ")
    return [line.split(b" ")[3] for line in lines[:-1]]


# ── what is asked first ──


@pytest.mark.parametrize(
    ("line", "right"),
    [
        (b"x consume other 1,retry=1 --nope", "consume.queues"),
        (b"x subscribe --max-length=5 other 1,retry=1", "consume.queues"),
        (b"x rebind other --remove 1,retry=1 --nope", "manage"),
    ],
)
def test_the_right_on_the_queue_is_asked_for_before_the_rest_is_read(
    line: bytes, right: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may not do it at all cannot make the broker read a megabyte of words."""
    assert asked(rights_with(("events",)), line, caplog).startswith(f"not permitted: {right}: ")


def test_events_are_asked_for_before_masks_are_tried(caplog: pytest.LogCaptureFixture) -> None:
    """Also those that the masks would take away again: it has named them."""
    reason = asked(Rights("worker", manage=("mail",)), b"x rebind mail salary.x --remove-mask salary.*", caplog)
    assert reason.startswith("not permitted: consume.events: ")


# ── the hot path ──


def publish(broker: Broker, client: Client, *events: bytes) -> list[bytes]:
    """The answer to each."""
    broker.feed(client, b"".join(b"m publish --confirm %s data\n" % event for event in events))
    broker.turn()
    answers = [line.split(b" ")[1] for line in client.pending().splitlines()]
    broker.sent(client, client.pending_size)
    return answers


def test_the_core_takes_by_itself_what_was_found_permitted() -> None:
    broker, client = known_to(Rights("worker", publish=("order.*",)))
    assert client.granted == set()
    assert publish(broker, client, b"order.a", b"order.a", b"salary", b"order.a", b"salary") == [
        b"ok", b"ok", b"error", b"ok", b"error",
    ]  # fmt: skip
    assert client.granted == {b"order.a"}
    assert broker.core.router.published == 3


def test_what_is_granted_has_a_bound() -> None:
    broker, client = known_to(Rights("worker", publish=("order.*",)))
    publish(broker, client, *(b"order.%d" % number for number in range(MOST_GRANTED + 1)))
    publish(broker, client, b"order." + b"x" * 10_000)
    assert client.granted == {b"order.%d" % MOST_GRANTED}
    assert broker.core.router.published == MOST_GRANTED + 2


def test_connections_of_one_token_share_what_is_granted() -> None:
    """Else each could have megabytes that nobody counts."""
    rights = Rights("worker", publish=("order.*",))
    broker, client = known_to(rights)
    other = broker.connect(PEER)
    broker.feed(other, b"a1 auth worker.token\n")
    publish(broker, client, b"order.a")
    assert other.granted is client.granted
    again = replace(rights)
    reconsider(broker, again)
    assert client.granted is other.granted is again.granted, "what was granted before is let go"


# ── when a queue goes ──


@pytest.mark.parametrize(
    ("line", "manage", "unused"),
    [
        (b'c2 recv {"queue": "q", "pattern": {"event": "order.new"}}', (), 60.0),
        (b'c2 recv {"queue": "q", "pattern": {"event": "order.new"}}', ("q",), 0.0),
        (b"c2 consume q", (), 60.0),
        (b"c2 consume q", ("q",), None),
        (b"c2 consume q --delete-queue-when-unused=60", (), 60.0),
        (b"c2 consume q --delete-queue-when-unused=0", (), 60.0),
        (b"c2 consume q --delete-queue-when-unused=0", ("q",), 0.0),
    ],
)
def test_when_a_queue_goes_is_said_by_who_makes_or_manages_it(
    line: bytes, manage: tuple[str, ...], unused: float | None
) -> None:
    broker, client = known_to(Rights("worker", queues=("q",), events=("order.*",), manage=manage))
    broker.feed(client, b"c1 consume q order.new --delete-queue-when-unused=60\n")
    broker.feed(client, line + b"\n")
    assert broker.queues.by_name[b"q"].unused == unused


def test_a_reader_cannot_stop_those_who_publish(caplog: pytest.LogCaptureFixture) -> None:
    """Neither by a queue that is full at once, nor by one that has no room for anything."""
    broker, client = known_to(Rights("reader", queues=("mine.*",), events=("order.*",)))
    broker.feed(client, b"s subscribe mine.x order.new --max-length=1 --overflow=reject\n")
    broker.feed(client, b"c consume mine.x order.new --max-bytes=1 --overflow=drop-oldest\n")
    assert caplog.text.count("not permitted: manage") == 2 and b"mine.x" not in broker.queues.by_name
    inside = broker.connect("inside", inside=True)
    broker.feed(inside, b"r rebind mine.x order.new --max-bytes=1 --overflow=drop-oldest\n")
    broker.feed(inside, b"o rebind other order.new\n")
    assert publish(broker, inside, b"order.new", b"order.new") == [b"ok", b"ok"]
    dropping, other = broker.queues.by_name[b"mine.x"], broker.queues.by_name[b"other"]
    assert (dropping.length, dropping.dropped, other.length) == (0, 2, 2)


def test_who_may_publish_all_is_asked_nothing() -> None:
    _, client = known_to(EVERYTHING)
    assert client.granted is None


# ── rights that change ──


def reconsider(broker: Broker, new: Rights | None) -> list[Client]:
    """What the file says now; answers those who were hung up on."""
    gone: list[Client] = []
    broker.connections.attach(FakeSockets(cut_off=gone.append))
    broker.authentication.reconsider(lambda _: new)
    return gone


def test_rights_that_change_count_at_once() -> None:
    broker, client = known_to(Rights("worker", publish=("order.*",)))
    assert publish(broker, client, b"order.a") == [b"ok"]
    assert reconsider(broker, Rights("worker", publish=("mail.*",))) == []
    assert publish(broker, client, b"order.a", b"mail.a") == [b"error", b"ok"]
    assert reconsider(broker, EVERYTHING) == []
    assert publish(broker, client, b"order.a") == [b"ok"]


def test_a_token_that_is_gone_ends_its_connections(caplog: pytest.LogCaptureFixture) -> None:
    broker, client = known_to(Rights("worker", publish=("**",), queues=("mail",)))
    broker.feed(client, b"c1 consume mail\n")
    assert reconsider(broker, None) == [client]
    assert f"client {PEER} is cut off: its token was revoked: worker" in caplog.text
    broker.feed(client, b"m1 publish order.old data\n")
    broker.turn()
    assert (broker.core.router.published, client.pending()) == (0, b"")
    broker.disconnect(client)


def test_thousands_that_are_cut_off_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    broker, client = known_to(Rights("worker"))
    others = [broker.connect(PEER) for _ in range(100)]
    for other in others:
        broker.feed(other, b"a1 auth worker.token\n")
    assert reconsider(broker, None) == [client, *others]
    assert caplog.text.count("is cut off: its token was revoked: worker") == TOLD_ONE_BY_ONE
    assert (
        f"clients beside these that are cut off: its token was revoked: worker: {101 - TOLD_ONE_BY_ONE}" in caplog.text
    )


@pytest.mark.parametrize(
    ("request_", "old", "new", "stays"),
    [
        (b"c1 consume mail", {"queues": ("mail",)}, {"queues": ("m*",)}, True),
        (b"c1 consume mail", {"queues": ("mail",)}, {"queues": ("other",)}, False),
        (b"h1 history earliest --follow", {"history": ("**",)}, {"history": ("**",), "admin": True}, True),
        (b"h1 history earliest --follow", {"history": ("**",)}, {"history": ("order.*",)}, False),
        (b"h1 history earliest --follow", {"history": ("a", "b")}, {"history": ("c", "b", "a")}, True),
        (b"h1 history earliest --follow", {"history": ("a", "b")}, {"history": ("a", "c")}, False),
        (b"h1 history earliest --follow", {"history": ("a", "b")}, {"history": ("**",)}, True),
        (b"p1 ping", {"history": ("**",), "queues": ("**",)}, {}, True),
    ],
)
def test_who_has_more_than_it_would_get_now_has_to_come_again(
    request_: bytes, old: dict[str, Any], new: dict[str, Any], stays: bool
) -> None:
    broker, client = known_to(Rights("worker", **old))
    broker.feed(client, request_ + b"\n")
    assert reconsider(broker, Rights("worker", **new)) == ([] if stays else [client])


STILL = "token worker has lost consume.events of what queues have that it consumes"


@pytest.mark.parametrize(
    ("requests", "old", "new", "told"),
    [
        (b"c1 consume q order.new", ("order.*",), ("mail.*",), True),
        (b"c1 consume q order.new", ("order.*", "x"), ("order.new", "y"), False),
        (b"c1 consume mail", (), ("mail.*",), False),  # which it never had, and another has given to the queue
        (b"c1 consume mail", ("order.*",), (), True),
        (b"s1 subscribe q order.new", ("order.*",), (), False),  # it does not consume
        (b'c1 recv {"queue": "q", "pattern": {"event": "order.new", "k": 1}}', ("order.*",), (), True),
        (b'c1 recv {"queue": "q", "pattern": {"k": 1}}', ("**",), ("order.*",), True),
        (b'c1 recv {"queue": "q", "pattern": {"k": 1}}', ("**",), ("**", "order.*"), False),
    ],
)
def test_what_a_queue_has_goes_on_and_the_operator_is_told(
    requests: bytes, old: tuple[str, ...], new: tuple[str, ...], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A subscription is the queue's: whoever may consume the queue gets it, whatever events it may bind."""
    broker, client = known_to(Rights("worker", queues=("**",), events=old))
    broker.feed(client, requests + b"\n")
    assert reconsider(broker, Rights("worker", queues=("**",), events=new)) == []
    assert (STILL in caplog.text) == told


def test_the_operator_is_told_once_for_a_token(caplog: pytest.LogCaptureFixture) -> None:
    rights = Rights("worker", queues=("**",), events=("order.*",))
    broker, client = known_to(rights)
    other = broker.connect(PEER)
    broker.feed(other, b"a1 auth worker.token\nc1 consume q0\n")
    for number in range(5):
        broker.feed(client, b"c%d consume q%d order.new\n" % (number, number))
    reconsider(broker, replace(rights, events=()))
    assert caplog.text.count(STILL) == 1
    assert "'q0' is one of 5" in caplog.text


def test_who_comes_back_says_again_what_its_queue_has_by_now() -> None:
    """It knows that by an --update, and needs a right for none of it: an admin has bound it."""
    broker, client = known_to(Rights("worker", queues=("mail",)))
    broker.feed(client, b"c1 consume --confirm mail\n")
    inside = broker.connect("inside", inside=True)
    broker.feed(inside, b"r1 rebind mail --add salary\n")
    broker.turn()
    update, told = client.pending().splitlines()[-1].split(b" --update ")
    assert (update, told) == (b"c1 ok", b"mail order.old salary")
    broker.feed(client, b"c2 consume " + told + b" --confirm\nc3 consume mail bonus\n")
    broker.turn()
    assert [line.split(b" ")[:2] for line in client.pending().splitlines()[-2:]] == [[b"c2", b"ok"], [b"c3", b"error"]]


def test_those_from_inside_and_strangers_stay() -> None:
    broker, client = known_to(EVERYTHING)
    broker.authentication.require_tokens(lambda *_: None)
    broker.connect(PEER)
    assert reconsider(broker, None) == [client]


# ── without an auth file ──


@pytest.mark.parametrize("peer", ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "127.9.9.9:1"])
def test_this_host_may_do_all(peer: str) -> None:
    broker = Broker()
    assert broker.authentication.barred(peer) is None
    client = broker.connect(peer)
    assert (client.rights, client.stranger, client.granted) == (EVERYTHING, False, None)


@pytest.mark.parametrize("peer", ["192.0.2.1:1", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:1", "0.0.0.0:1", "nonsense"])
def test_others_are_not_let_in_unless_that_is_asked_for(peer: str) -> None:
    barred = Broker().authentication.barred(peer)
    assert barred is not None
    assert "--auth-file" in str(barred) and "--insecure" in str(barred)
    open_to_all = Broker(insecure=True)
    assert open_to_all.authentication.barred(peer) is None
    assert open_to_all.connect(peer).rights == FROM_AFAR


def test_eval_is_for_this_host(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(insecure=True)
    for peer, answer in (("127.0.0.1:1", b"x ok 2\n"), (PEER, b"x error ")):
        client = broker.connect(peer)
        broker.feed(client, b"x _eval 1 + 1\n")
        assert client.pending().startswith(answer)
    assert "not permitted: eval" in caplog.text


def test_those_from_inside_have_the_rights_that_they_are_given() -> None:
    broker = Broker()
    assert broker.connect("inside", inside=True).rights == EVERYTHING
    some = Rights("worker", publish=("order.*",))
    client = broker.connect("inside", inside=True, rights=some)
    assert publish(broker, client, b"order.a", b"salary") == [b"ok", b"error"]
