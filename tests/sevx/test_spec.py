"""The examples of the specification, run as written, with a real broker; and what it says beside them."""

import json
import threading
from typing import Any

import pytest

import sevx
from mqks import testing
from mqks.client.errors import Refused
from sevx.connection import Connection
from tests.running import PATIENCE
from tests.sevx import spec
from tests.sevx.conftest import Seen

EVENT = {"src": "service1", "act": "updated", "obj": "user", "data": {"id": 42, "name": "Kate"}}
QUEUE = "opt.service2.events.test.on_event.act=updated.obj=user"
PATTERN = {"obj": "user", "act": "updated"}


def run(block: str, names: dict[str, Any], **options: Any) -> None:
    exec(compile(spec.telling(spec.python(block, **options)), spec.FILE, "exec"), names)


@pytest.mark.usefixtures("default")
def test_send_and_recv(seen: Seen) -> None:
    names: dict[str, Any] = {"__name__": "events.test", "seen": seen}
    run(spec.RECV, names)
    run(spec.SEND, names)
    id, dt, text, name = seen.take(4)
    assert dt == sevx.Event(id, "{}").dt is not None
    assert json.loads(text) == EVENT
    assert name == "Kate"
    assert sevx._eval("sorted(state.queues)") == [QUEUE]


@pytest.mark.usefixtures("default")
@pytest.mark.parametrize(("unused", "shown"), [(True, 0), (False, None), (5.42, 5.42)])
def test_recv_with_options(seen: Seen, unused: object, shown: object) -> None:
    names: dict[str, Any] = {"__name__": "events.test", "seen": seen, "on": sevx.on, "pattern": PATTERN}
    run(spec.RECV_WITH_OPTIONS, names, delete_queue_when_unused=unused)
    assert sevx._eval(f"state.queues[{QUEUE!r}].delete_when_unused") == shown
    sevx.send(EVENT)
    assert seen.next() == 0
    run(spec.DELETE, names)
    assert sevx._eval("len(state.consumers)") == 0
    run(spec.DELETE_QUEUE, names)
    assert sevx._eval("len(state.queues)") == 0


@pytest.mark.usefixtures("default")
def test_internal() -> None:
    names: dict[str, Any] = {}
    run(spec.INTERNAL, names)
    assert sevx._ping("service1") == "service1"
    assert sevx._eval("len(state.queues)") == 0
    with pytest.raises(Refused):
        sevx._eval("open('/etc/passwd')")


def test_workers_of_the_same_type_share_their_queue(here: Connection, broker: testing.Broker, seen: Seen) -> None:
    others = [Connection(), Connection()]
    try:
        for number, worker in enumerate(others):
            worker.connect(broker.url)
            names = {"__name__": "test", "on": worker.on, "seen": seen, "me": number}
            code = "@on({'obj': 'user'}, wait=True)\ndef on_event(event): seen.put((me, event.content.n))"
            exec(compile(code, spec.FILE, "exec"), names)
        for n in range(10):
            here.send({"obj": "user", "n": n})
        came = seen.take(10)
        assert sorted(n for _, n in came) == list(range(10))
        assert {me for me, _ in came} == {0, 1}
    finally:
        for worker in others:
            worker.disconnect()
    assert seen.empty()


def test_send_once_receive_everywhere(here: Connection, seen: Seen) -> None:
    """Copies go to every queue that wants the event, and to none if none does."""

    @here.on({"obj": "user"}, wait=True)
    def on_user(event: sevx.Event) -> None:
        seen.put(("user", event.content.n))

    @here.on({"act": "updated"}, wait=True)
    def on_updated(event: sevx.Event) -> None:
        seen.put(("updated", event.content.n))

    @here.on({}, wait=True)
    def on_all(event: sevx.Event) -> None:
        seen.put(("all", event.content.n))

    here.send({"obj": "user", "act": "updated", "n": 1})
    here.send({"obj": "page", "act": "updated", "n": 2})
    here.send({"n": 3})
    assert sorted(seen.take(6)) == [("all", 1), ("all", 2), ("all", 3), ("updated", 1), ("updated", 2), ("user", 1)]


def test_reject_returns_the_event_with_retry_incremented(here: Connection, seen: Seen) -> None:
    @here.on({}, manual_ack=True, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put(event.retry)
        assert event.ack(wait=True) if event.retry == 3 else event.reject()

    here.send({"n": 1})
    assert seen.take(4) == [0, 1, 2, 3]


def test_ack_all_and_reject_all(here: Connection, seen: Seen) -> None:
    """The third one settles them all: first back to the queue, then for good."""

    @here.on({}, manual_ack=True, wait=True)
    def on_event(event: sevx.Event) -> None:
        number, retry = event.content.n, event.retry
        if number == 3:
            assert event.ack_all(wait=True) if retry else event.reject_all(wait=True)
        seen.put((number, retry))

    for n in (1, 2, 3):
        here.send({"n": n})
    assert sorted(seen.take(6)) == [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]
    assert here.eval("[c.unacked for c in state.consumers]") == [0]


def test_a_deleted_receiver_gets_no_more_and_its_unacked_events_return(here: Connection, seen: Seen) -> None:
    @here.on({}, queue="q1", delete_queue_when_unused=False, manual_ack=True, wait=True)
    def first(event: sevx.Event) -> None:
        seen.put(("first", event.content.n, event.retry))

    here.send({"n": 1})
    assert seen.next() == ("first", 1, 0)
    first.delete()

    @here.on({}, queue="q1", manual_ack=True, wait=True)
    def second(event: sevx.Event) -> None:
        event.ack()
        seen.put(("second", event.content.n, event.retry))

    here.send({"n": 2})
    assert seen.take(2) == [("second", 1, 1), ("second", 2, 0)]


def test_wait_waits_for_ok_or_error(here: Connection) -> None:
    with pytest.raises(Refused):
        here.on({}, queue="q1", delete_queue_when_unused=-1, wait=True)(print)
    with pytest.raises(Refused):
        here.send({"text": "x" * (2 << 20)}, wait=True)
    assert here.eval("len(state.consumers)") == 0
    assert here.ping("still there") == "still there"


def test_a_refused_receiver_that_nobody_waits_for_is_in_the_log(
    here: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = here.on({}, queue="q1", delete_queue_when_unused=-1)(print)
    receiver.thread.join(PATIENCE)
    assert "print receives nothing: the broker refused" in caplog.text


def test_disconnect_deletes_receivers_and_returns_what_was_not_acked(
    here: Connection, broker: testing.Broker, seen: Seen
) -> None:
    other = Connection()
    other.connect(broker.url)

    @other.on({}, queue="q1", delete_queue_when_unused=False, manual_ack=True, wait=True)
    def other_event(event: sevx.Event) -> None:
        seen.put(event.retry)

    here.send({"n": 1})
    assert seen.next() == 0
    other.disconnect()

    @here.on({}, queue="q1")
    def on_event(event: sevx.Event) -> None:
        seen.put(event.retry)

    assert seen.next() == 1


def test_the_prefix_comes_first_and_the_events_own_keys_win(here: Connection, seen: Seen) -> None:
    @here.on({}, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put(event.json)

    prefix: dict[str, Any] = {"src": "service1", "obj": "none"}
    here.send_prefix(prefix)
    prefix["later"] = "is not seen"
    here.send({"n": 1, "obj": "user"})
    here.send_prefix({})
    here.send({"n": 2})
    assert seen.take(2) == ['{"src": "service1", "obj": "user", "n": 1}', '{"n": 2}']


def test_the_id_of_an_event_is_what_send_answers(here: Connection, seen: Seen) -> None:
    @here.on({}, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put(event.id)

    sent = [here.send({"n": 1}), here.send({"n": 2}, wait=True)]
    assert seen.take(2) == sent == sorted(sent)


def test_many_threads_send(here: Connection, seen: Seen) -> None:
    @here.on({}, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put(event.content.n)

    def send(first: int) -> None:
        for n in range(first, first + 250):
            here.send({"n": n})

    threads = [threading.Thread(target=send, args=(first,)) for first in range(0, 1000, 250)]
    for thread in threads:
        thread.start()
    assert sorted(seen.take(1000)) == list(range(1000))
    for thread in threads:
        thread.join(PATIENCE)
