"""What queues delivered, from counters that grow, begin anew, or go; and the thread that asks a broker for them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import mqks
from mqks.pipeline.deliveries import (
    LONGEST_NAME,
    MOST_NAMES,
    SCOPE,
    Asking,
    Deliveries,
    Tick,
    gets_own,
    message,
    newest,
    publish,
)
from mqks.testing import broker

BEGIN = datetime(2026, 11, 16, 5, 1, tzinfo=UTC)
COUNTED = ("count", "delivered", "acked", "rejected")


def queue(published: int = 0, delivered: int = 0, acked: int = 0, rejected: int = 0, **more: Any) -> dict[str, Any]:
    figures = {"published": published, "delivered": delivered, "acked": acked, "rejected": rejected}
    return {"events": [], "pattern": None, "ready": 0, "unacked": 0, "consumers": 0, **figures, **more}


def told(uptime: float, **queues: dict[str, Any]) -> dict[str, Any]:
    return {"uptime": uptime, "queues": queues}


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def counted(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["minute"][11:16], row["name"], row["final"], *(row[word] for word in COUNTED)) for row in rows]


def test_differences_of_a_minute_and_its_last_word() -> None:
    deliveries = Deliveries()
    assert deliveries.take(told(1000, q=queue(100, 90)), at(10)) == []
    assert counted(deliveries.take(told(1010, q=queue(103, 95, 2, 1)), at(20))) == [("05:01", "q", False, 3, 5, 2, 1)]
    assert deliveries.take(told(1020, q=queue(103, 95, 2, 1)), at(30)) == []
    assert counted(deliveries.take(told(1040, q=queue(104, 96, 3, 1)), at(50))) == [("05:01", "q", False, 4, 6, 3, 1)]
    # What happened up to the first look of the next minute belongs to this one.
    last = deliveries.take(told(1050.1, q=queue(110, 96, 3, 1, ready=6, consumers=1)), at(60.1))
    assert counted(last) == [("05:01", "q", True, 10, 6, 3, 1)]
    assert (last[0]["ready"], last[0]["consumers"], last[0]["rate"]) == (6, 1, 0.1)
    assert deliveries.take(told(1060, q=queue(110, 96, 3, 1, ready=6, consumers=1)), at(70)) == []
    assert deliveries.take(told(1110, q=queue(110, 96, 3, 1, ready=6, consumers=1)), at(120)) == []


def test_a_new_queue_counts_from_nothing() -> None:
    deliveries = Deliveries()
    deliveries.take(told(1000), at(0))
    assert counted(deliveries.take(told(1005, q=queue(7, 7)), at(5))) == [("05:01", "q", False, 7, 7, 0, 0)]


def test_a_restart_is_never_negative_and_loses_nothing() -> None:
    deliveries = Deliveries()
    deliveries.take(told(1000, q=queue(100, 100)), at(0))
    assert counted(deliveries.take(told(3, q=queue(4, 2)), at(5))) == [("05:01", "q", False, 4, 2, 0, 0)]
    # Another restart, after which the counters are larger than before.
    assert counted(deliveries.take(told(4, q=queue(6, 6)), at(10))) == [("05:01", "q", False, 10, 8, 0, 0)]


def test_a_queue_deleted_and_made_again_counts_anew() -> None:
    deliveries = Deliveries()
    deliveries.take(told(1000, q=queue(100, 100)), at(0))
    assert counted(deliveries.take(told(1005, q=queue(1, 1)), at(5))) == [("05:01", "q", False, 1, 1, 0, 0)]


def test_a_queue_that_went_keeps_what_it_did() -> None:
    deliveries = Deliveries()
    deliveries.take(told(1000, q=queue()), at(0))
    deliveries.take(told(1005, q=queue(5, 5)), at(5))
    assert counted(deliveries.take(told(1060), at(60))) == [("05:01", "q", True, 5, 5, 0, 0)]


def test_only_the_largest_are_told() -> None:
    deliveries = Deliveries()
    deliveries.take(told(1000), at(0))
    many = {f"q{n}": queue(n) for n in range(1, MOST_NAMES + 11)}
    rows = deliveries.take(told(1005, **many), at(5))
    assert [row["count"] for row in rows] == list(range(MOST_NAMES + 10, 10, -1))


def test_names_that_are_too_long_for_a_line_are_not_told() -> None:
    deliveries = Deliveries()
    deliveries.take(told(1000), at(0))
    rows = deliveries.take(told(1005, **{"ü" * (LONGEST_NAME // 2 + 1): queue(5), "q" * LONGEST_NAME: queue(4)}), at(5))
    assert [row["count"] for row in rows] == [4]


def test_a_row_that_is_refused_keeps_no_other_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    deliveries = Deliveries()
    deliveries.take(told(1000), at(0))
    rows = deliveries.take(told(1005, **{"q" * 900: queue(5), "q": queue(4)}), at(5))
    with broker(max_line=800) as running, mqks.Client(running.url) as client:
        publish(client, rows)
        records = [json.loads(record.data)["name"] for record in client.history("earliest")]
    assert records == ["q"]
    assert "does not take a row of the stats" in caplog.text


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"events": ["order.paid"]}, False),
        ({"events": ["order.paid", "mqks.stats.minute"]}, True),
        ({"events": ["mqks.pipeline.progress"]}, True),
        ({"pattern": {}}, True),
        ({"pattern": {"event": "mqks.stats.minute"}}, True),
        ({"pattern": {"event": "order.paid"}}, False),
        ({"pattern": {"data": {"kind": "queue"}}}, True),
        ({"pattern": {"user": 7}}, False),
    ],
)
def test_queues_that_get_our_own_events_are_left_out(more: dict[str, Any], expected: bool) -> None:
    assert gets_own(queue(**more)) is expected
    deliveries = Deliveries()
    deliveries.take(told(1000), at(0))
    assert bool(deliveries.take(told(1005, q=queue(1, 1, **more)), at(5))) is not expected


def test_only_what_was_said_last_is_told_later() -> None:
    deliveries = Deliveries()
    rows = [
        row
        for look in range(4)
        for row in deliveries.take(told(1000 + look * 30, a=queue(look), b=queue(look * 2)), at(look * 30))
    ]
    assert counted(newest(rows)) == [
        ("05:01", "b", True, 4, 0, 0, 0),
        ("05:01", "a", True, 2, 0, 0, 0),
        ("05:02", "b", False, 2, 0, 0, 0),
        ("05:02", "a", False, 1, 0, 0, 0),
    ]


def test_the_last_word_is_said_once(tmp_path: Path) -> None:
    deliveries = Deliveries()
    deliveries.take(told(1000), at(0))
    update = deliveries.take(told(1005, q=queue(1, 1)), at(5))
    final = deliveries.take(told(1060, q=queue(1, 1)), at(60))
    assert SCOPE == "mqks.stats" and message(final[0])[2] == message(update[0])[2]
    with broker(data=tmp_path) as running, mqks.Client(running.url) as client:
        for _ in range(2):
            publish(client, [*update, *final])
        records = [json.loads(record.data) for record in client.history("earliest", events=["mqks.stats.minute"])]
    assert [record["final"] for record in records] == [False, True, False]


def test_a_tick_is_due_once_when_a_minute_is_over_and_late_data_too() -> None:
    tick = Tick(timedelta(seconds=10))
    assert not tick.due(at(600))
    tick.happened(at(5))
    assert [tick.due(at(second)) for second in (59, 70, 71, 72, 600)] == [False, False, True, False, False]


def test_the_thread_tells_what_a_broker_did() -> None:
    with broker() as running, mqks.Client(running.url) as client, client.consume("seen", ["mqks.stats.minute"]) as seen:
        client.rebind("work", ["order.paid"])
        asking = Asking(running.url, Tick(timedelta(0)), every=0.05)
        try:
            while (
                first := seen.get(timeout=0.1)
            ) is None:  # the first look counts nothing: so there must be one before
                client.publish("order.paid", "{}", confirm=True)
            row = json.loads(first.data)
            assert (row["kind"], row["name"], row["final"], row["consumers"]) == ("queue", "work", False, 0)
            assert row["count"] >= 1 and row["ready"] >= row["count"]
        finally:
            asking.close()
        client.delete_queue("work")
