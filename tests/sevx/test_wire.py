"""The lines that leave the client are those of the specification; only the ids differ."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from sevx import Event
from sevx.connection import Connection
from tests.sevx import spec
from tests.sevx.conftest import Seen
from tests.sevx.recorder import recorder

DTID = re.compile(r"\d{20}[0-9A-Za-z]{4}")
PATTERN = {"obj": "user", "act": "updated"}


class Ids(dict[str, str]):
    """The specification's ids → ours; the same one stays the same."""

    def read(self, expected: str, line: str) -> str:
        """The line, with our ids as the specification writes them."""
        theirs, ours = DTID.findall(expected), DTID.findall(line)
        assert len(theirs) == len(ours) > 0, line
        for their, our in zip(theirs[1:], ours[1:], strict=True):
            assert self.get(their, our) == our, line
        self[theirs[0]] = ours[0]
        translated = dict(zip(ours, theirs, strict=True))
        return DTID.sub(lambda found: translated[found[0]], line)


@pytest.fixture
def connection() -> Iterator[Connection]:
    connection = Connection()
    yield connection
    connection.disconnect()


def answered(block: str) -> list[str]:
    """The answers to the first request of the block, for any id."""
    return [re.sub(r"^\S+", "{id}", answer) for answer in spec.answers(block)]


def shape(line: str) -> tuple[str, Any]:
    """The line with its JSON read, where the specification's order of keys is a matter of chance."""
    head, _, text = line.partition("{")
    return head, json.loads("{" + text)


def run(code: str, connection: Connection, **names: Any) -> dict[str, Any]:
    """As a file of the service, with the functions of this connection in place of the module's."""
    functions = {"on": connection.on, "send": connection.send, "send_prefix": connection.send_prefix}
    namespace = {"__name__": "events.test", **functions, **names}
    exec(compile(re.sub(r"^from sevx import.*", "", code, flags=re.MULTILINE), spec.FILE, "exec"), namespace)
    return namespace


def again(event: Event) -> None:
    """It is in hand once more, as after a redelivery."""
    message = event._message
    assert message is not None
    message.stream.taken[message] = None


def test_send(connection: Connection) -> None:
    with recorder({"send": answered(spec.SEND)}) as peer:
        connection.connect(peer.url)
        run(spec.python(spec.SEND), connection)
        (expected,) = spec.requests(spec.SEND)
        line = Ids().read(expected, peer.next())
        assert shape(line) == shape(expected)
        assert line.endswith(
            ' send {"src": "service1", "obj": "user", "act": "updated", "data": {"id": 42, "name": "Kate"}}'
        )
        connection.disconnect()


def test_recv(connection: Connection, seen: Seen) -> None:
    with recorder({"recv": answered(spec.RECV)}) as peer:
        connection.connect(peer.url)
        code = spec.telling(spec.python(spec.RECV))
        run(code, connection, seen=seen)
        (expected,) = spec.requests(spec.RECV)
        assert Ids().read(expected, peer.next()) == expected
        id, *others = seen.take(4)
        said = re.findall(r"event\.\S+ +# (.*)$", spec.RECV, re.MULTILINE)
        assert [id, *(repr(value).removeprefix("datetime.") for value in others)] == said
        connection.disconnect()


def test_recv_with_options(connection: Connection, seen: Seen) -> None:
    with recorder({"recv": answered(spec.RECV_WITH_OPTIONS)}) as peer:
        connection.connect(peer.url)
        code = spec.redelivering(spec.telling(spec.python(spec.RECV_WITH_OPTIONS)))
        names = run(code, connection, pattern=PATTERN, seen=seen, again=again)
        ids = Ids({"20161231235959123456uN1q": "20161231235959123456uN1q"})
        asked, *settled = spec.requests(spec.RECV_WITH_OPTIONS)
        assert shape(ids.read(asked, peer.next())) == shape(asked)
        assert seen.next() == 1
        assert len(settled) == 4
        for expected in settled:
            assert ids.read(expected, peer.next()) == expected
        for line in spec.python(spec.DELETE), spec.python(spec.DELETE_QUEUE):
            exec(line, names)
        for block in spec.DELETE, spec.DELETE_QUEUE:
            (expected,) = spec.requests(block)
            assert ids.read(expected, peer.next()) == expected
        connection.disconnect()


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, {}),
        ({"delete_queue_when_unused": True, "manual_ack": False, "wait": True}, {}),
        ({"delete_queue_when_unused": False}, {"delete_queue_when_unused": False}),
        ({"delete_queue_when_unused": 5}, {"delete_queue_when_unused": 5}),
        ({"manual_ack": True}, {"manual_ack": True}),
    ],
)
def test_only_what_is_no_default_is_sent(connection: Connection, options: dict[str, Any], sent: dict[str, Any]) -> None:
    with recorder({}) as peer:
        connection.connect(peer.url)
        connection.on(PATTERN, queue="q1", **options)(print)
        assert shape(peer.next().partition(" ")[2]) == ("recv ", {"pattern": PATTERN, "queue": "q1", **sent})
        connection.disconnect()


def test_a_receiver_that_is_waited_for_in_vain_is_deleted(connection: Connection) -> None:
    with recorder({"recv": []}) as peer:
        connection.connect(peer.url, timeout=0.2)
        with pytest.raises(TimeoutError) as caught:
            connection.on(PATTERN, queue="q1", wait=True)(print)
        id, action, _ = peer.next().split(" ", 2)
        assert action == "recv"
        assert shape(peer.next().partition(" ")[2]) == ("delete_receiver ", {"receiver_id": id})
        assert caught.tb, "what it holds keeps the receiver from leaving by itself"
        connection.disconnect()


def test_internal(connection: Connection) -> None:
    ping, evaluate = (re.sub(r"^\S+", "{id}", answer) for answer in spec.answers(spec.INTERNAL))
    with recorder({"_ping": [ping], "_eval": [evaluate]}) as peer:
        connection.connect(peer.url)
        assert connection.ping("service1") == "service1"
        assert connection.eval("len(state.queues)") == 42
        for expected in spec.requests(spec.INTERNAL):
            assert Ids().read(expected, peer.next()) == expected
        connection.disconnect()
