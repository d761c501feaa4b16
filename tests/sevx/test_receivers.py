"""How functions are called: one event at a time and in order, sync or async, and whatever they raise."""

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

import sevx
from mqks.client.blocking import Consumer, Message
from sevx import receiver
from sevx.connection import Connection
from sevx.loop import LoopThread
from tests.running import PATIENCE
from tests.sevx.conftest import Seen

Handler = Callable[[sevx.Event], Any]


def made(kind: str, inner: Handler) -> Handler:
    """The same handler, sync or async."""

    async def on_event(event: sevx.Event) -> None:
        await asyncio.sleep(0)
        inner(event)

    return inner if kind == "sync" else on_event


both = pytest.mark.parametrize("kind", ["sync", "async"])


def test_a_decorated_function_is_still_that_function(here: Connection) -> None:
    @here.on({})
    def on_event(event: sevx.Event) -> str:
        """Says who."""
        return f"{event.content.who}!"

    assert on_event(sevx.Event("s1", '{"who": "Kate"}')) == "Kate!"
    assert (on_event.__name__, on_event.__doc__) == ("on_event", "Says who.")  # type: ignore[attr-defined]


def test_a_decorated_coroutine_function_too(here: Connection) -> None:
    @here.on({})
    async def on_event(event: sevx.Event) -> str:
        return f"{event.content.who}!"

    assert asyncio.run(on_event(sevx.Event("s1", '{"who": "Kate"}'))) == "Kate!"


def test_sync_one_event_at_a_time_in_order(here: Connection, seen: Seen) -> None:
    @here.on({}, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put((event.content.n, "begins"))
        seen.put((event.content.n, "ends"))

    for n in range(100):
        here.send({"n": n})
    assert seen.take(200) == [(n, step) for n in range(100) for step in ("begins", "ends")]


def test_async_one_event_at_a_time_in_order(here: Connection, seen: Seen) -> None:
    @here.on({}, wait=True)
    async def on_event(event: sevx.Event) -> None:
        seen.put((event.content.n, "begins"))
        for _ in range(3):
            await asyncio.sleep(0)
        seen.put((event.content.n, "ends"))

    for n in range(100):
        here.send({"n": n})
    assert seen.take(200) == [(n, step) for n in range(100) for step in ("begins", "ends")]


def test_async_functions_share_one_loop_and_do_not_wait_for_each_other(here: Connection, seen: Seen) -> None:
    opened = asyncio.Event()

    @here.on({"n": 1}, wait=True)
    async def waits(_: sevx.Event) -> None:
        seen.put("waiting")
        await opened.wait()
        seen.put(asyncio.get_running_loop())

    @here.on({"n": 2}, wait=True)
    async def opens(_: sevx.Event) -> None:
        opened.set()
        seen.put(asyncio.get_running_loop())

    here.send({"n": 1})
    assert seen.next() == "waiting"
    here.send({"n": 2})
    one, other = seen.take(2)
    assert one is other


def test_sync_functions_do_not_wait_for_each_other(here: Connection, seen: Seen) -> None:
    opened = threading.Event()

    @here.on({"n": 1}, wait=True)
    def waits(_: sevx.Event) -> None:
        seen.put(opened.wait(PATIENCE))

    @here.on({"n": 2}, wait=True)
    def opens(_: sevx.Event) -> None:
        opened.set()

    here.send({"n": 1})
    here.send({"n": 2})
    assert seen.next() is True


def test_anything_that_can_be_called(here: Connection, seen: Seen) -> None:
    async def tell(prefix: str, event: sevx.Event) -> None:
        seen.put(prefix + event.content.text)

    here.on({}, queue="q1", wait=True)(functools.partial(tell, "it says "))
    here.send({"text": "hi"})
    assert seen.next() == "it says hi"


def test_one_function_may_be_on_several_patterns(here: Connection, seen: Seen) -> None:
    @here.on({"n": 1}, wait=True)
    @here.on({"n": 2}, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put(event.content.n)

    here.send({"n": 1})
    here.send({"n": 2})
    assert sorted(seen.take(2)) == [1, 2]


@both
@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(1), KeyboardInterrupt()], ids=repr)
def test_what_a_handler_raises_is_logged_and_the_next_event_comes(
    here: Connection, seen: Seen, caplog: pytest.LogCaptureFixture, kind: str, error: BaseException
) -> None:
    def on_event(event: sevx.Event) -> None:
        if event.content.n == 1:
            raise error
        seen.put(event.content.n)

    here.on({}, wait=True)(made(kind, on_event))
    id = here.send({"n": 1})
    here.send({"n": 2})
    assert seen.next() == 2
    (record,) = [record for record in caplog.records if record.name == "sevx"]
    assert record.levelno == logging.ERROR and f"failed, and event {id} is lost" in record.message
    assert record.exc_info is not None and record.exc_info[1] is error


@both
def test_with_manual_ack_a_failed_event_comes_again(
    here: Connection, seen: Seen, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(receiver, "FIRST_PAUSE", 0.001)

    def on_event(event: sevx.Event) -> None:
        seen.put(event.retry)
        if event.retry < 3:
            raise ValueError("not yet")
        event.ack(wait=True)
        seen.put("acked")

    here.on({}, manual_ack=True, wait=True)(made(kind, on_event))
    id = here.send({"n": 1})
    assert seen.take(5) == [0, 1, 2, 3, "acked"]
    messages = [record.message for record in caplog.records if record.name == "sevx"]
    assert [message.partition("on_event failed, ")[2] for message in messages] == [
        f"and event {id} goes back to the queue in {seconds:g} s" for seconds in (0.001, 0.002, 0.004)
    ]
    assert here.eval("[c.unacked for c in state.consumers]") == [0]


@pytest.mark.parametrize(
    ("retry", "seconds"), [(0, 0.1), (1, 0.2), (2, 0.4), (5, 3.2), (6, 5.0), (7, 5.0), (10**9, 5.0)]
)
def test_the_pause_grows(retry: int, seconds: float) -> None:
    assert receiver.pause_before(retry) == pytest.approx(seconds)


def test_a_bad_event_does_not_hold_up_the_others(here: Connection, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "pause_before", lambda _: 3600.0)

    @here.on({}, manual_ack=True, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put(event.content.n)
        if event.content.n == 1:
            raise ValueError("bad")
        event.ack()

    for n in (1, 2, 3):
        here.send({"n": n})
    assert seen.take(3) == [1, 2, 3]


def test_when_many_fail_the_receiver_pauses_too(here: Connection, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one that fails has gone back before the third is looked at."""
    monkeypatch.setattr(receiver, "pause_before", lambda _: 0.5)
    monkeypatch.setattr(receiver, "MOST_HELD", 2)

    @here.on({}, queue="q1", manual_ack=True, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put((event.content.n, here.eval("state.queues['q1'].rejected")))
        raise ValueError("all are bad")

    for n in (1, 2, 3):
        here.send({"n": n})
    *_, (third, rejected) = seen.take(3)
    assert third == 3
    assert rejected >= 1


def test_deleting_a_receiver_ends_its_pause(here: Connection, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "pause_before", lambda _: 3600.0)
    monkeypatch.setattr(receiver, "MOST_HELD", 1)

    @here.on({}, manual_ack=True, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put(event.content.n)
        raise ValueError("bad")

    here.send({"n": 1})
    assert seen.next() == 1
    on_event.delete()
    on_event.thread.join(PATIENCE)
    assert not on_event.thread.is_alive()


@pytest.mark.parametrize(("manual_ack", "handled"), [(True, []), (False, ["s1"])])
def test_an_event_that_comes_while_the_receiver_ends(manual_ack: bool, handled: list[str]) -> None:
    """With manual ack it goes back to the queue; else nobody would give it again."""

    class Coming:
        queue = "q1"

        def __iter__(self) -> Iterator[Message]:
            ending.finish()
            yield Message("s1", "", "{}", 0, "r1")

        def delete(self) -> None:
            pass

    called: list[str] = []
    ending: sevx.Receiver[None] = sevx.Receiver(
        lambda event: called.append(event.id),
        cast(Consumer, Coming()),
        manual_ack=manual_ack,
        loop=LoopThread(),
        ended=lambda _: None,
    )
    ending.thread.start()
    ending.thread.join(PATIENCE)
    assert called == handled


def test_a_receiver_that_ended_is_forgotten(here: Connection) -> None:
    receiver = here.on({}, queue="q1", wait=True)(print)
    assert here._receivers == {receiver}
    receiver.delete()
    receiver.thread.join(PATIENCE)
    assert here._receivers == set()


def test_an_event_that_was_settled_before_the_failure_stays_settled(
    here: Connection, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    @here.on({}, manual_ack=True, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put(event.content.n)
        event.ack()
        raise ValueError("too late")

    here.send({"n": 1})
    here.send({"n": 2})
    assert seen.take(2) == [1, 2]
    here.disconnect()
    assert caplog.text.count("failed after it had settled event") == 2


def test_an_event_may_be_settled_after_the_handler(here: Connection, seen: Seen) -> None:
    here.on({}, queue="q1", manual_ack=True, wait=True)(seen.put)
    here.send({"n": 1})
    event = seen.next()
    assert here.eval("[c.unacked for c in state.consumers]") == [1]
    assert event.ack(wait=True)
    assert here.eval("[c.unacked for c in state.consumers]") == [0]


def test_an_event_is_settled_once(here: Connection, seen: Seen) -> None:
    @here.on({}, manual_ack=True, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put([event.ack(wait=True), event.ack(), event.reject(wait=True), event.retry])

    here.send({"n": 1})
    here.send({"n": 2})
    assert seen.take(2) == [[True, False, False, 0]] * 2


def test_with_prefetch_a_worker_leaves_events_to_the_others(here: Connection, seen: Seen) -> None:
    for _ in range(2):
        here.on({}, queue="q1", manual_ack=True, prefetch=1, wait=True)(seen.put)
    for n in range(3):
        here.send({"n": n})
    events = seen.take(2)
    assert here.eval("[c.unacked for c in state.consumers]") == [1, 1]
    events[0].ack()
    assert seen.next().content.n == 2


def test_a_receiver_whose_queue_somebody_else_deletes_says_so(
    here: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    first = here.on({}, queue="q1", wait=True)(print)
    other = Connection()
    other.on({}, queue="q1", wait=True)(print).delete_queue()
    first.thread.join(PATIENCE)
    assert "print receives no more: its queue q1 was deleted" in caplog.text
    assert caplog.text.count("receives no more") == 1
    other.disconnect()


def test_delete_and_delete_queue_twice(here: Connection) -> None:
    receiver = here.on({}, queue="q1", wait=True)(print)
    for _ in range(2):
        receiver.delete_queue()
        receiver.delete()
    assert here.eval("len(state.queues)") == 0


def test_a_pattern_is_taken_as_it_is_now(here: Connection, seen: Seen) -> None:
    pattern: dict[str, Any] = {"tags": ("a", "b")}
    on = here.on(pattern, queue="q1", wait=True)
    pattern["n"] = 1
    on(lambda event: seen.put(event.content.tags))
    here.send({"tags": ["a", "b"]})
    assert seen.next() == ["a", "b"]


@pytest.mark.parametrize("pattern", [["obj"], "obj", {"at": object()}, {"a": {1, 2}}])
def test_what_is_no_pattern(here: Connection, pattern: Any) -> None:
    with pytest.raises(TypeError):
        here.on(pattern)
