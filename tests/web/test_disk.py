"""The journal's figures, and ages, on real files."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.journal.disk import RealDisk
from mqks.journal.timing import Histogram
from mqks.web.disk import DAY, DiskFigures, quantile
from mqks.web.state import Figures
from tests.web.stage import HOST, Stage


def test_without_a_journal() -> None:
    journal = Stage().figures.journal()
    assert journal["durability"] == "memory"
    assert journal["disk_free"] is journal["last_sync"] is journal["sync_p50"] is journal["pinned_by"] is None


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_quantiles_are_within_the_bucket_of_the_true_one(share: float) -> None:
    rng = random.Random(3)
    times = Histogram()
    values = sorted(rng.expovariate(200) for _ in range(1000))
    for value in values:
        times.add(value, 0.0)
    true = values[int(share * 1000) - 1]
    upper = next(bound for bound in times.buckets if bound >= true)
    lower = max((bound for bound in times.buckets if bound < true), default=0.0)
    found = quantile(times, share)
    assert found is not None
    assert lower <= found <= upper


def test_quantiles_of_nothing_and_of_very_long_syncs() -> None:
    times = Histogram()
    assert quantile(times, 0.5) is None
    times.add(100.0, 0.0)
    assert quantile(times, 0.5) == times.buckets[-1]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Broker]:
    disk = RealDisk(tmp_path)
    broker = Broker(disk=disk, segment_size=4096, retain_bytes=1 << 40)
    broker.recover()
    yield broker
    disk.stop()


def put(broker: Broker, client: Client, *lines: bytes) -> None:
    broker.feed(client, b"".join(line + b"\n" for line in lines))
    broker.turn()
    broker.sent(client, client.pending_size)


def test_a_journal_and_its_disk(kept: Broker) -> None:
    figures = Figures(kept, HOST)
    client = kept.connect("127.0.0.1:5000")
    put(kept, client, b"r rebind q e", b"m publish e x", b"h hold archive 0 --for=60")
    figures.sample()
    journal = figures.journal()
    assert journal["durability"] == "always"
    assert journal["written"] == kept.core.log.written > 0
    assert journal["bytes"] == kept.persistence.journal.segments.total  # type: ignore[union-attr]
    assert 0 < journal["disk_free"] <= journal["disk_total"]
    [hold] = journal["holds"]
    assert (hold["name"], hold["position"], hold["behind"]) == ("archive", 0, journal["written"])
    assert 0 < hold["seconds"] <= 60


def test_the_queue_that_pins_the_journal_is_named(kept: Broker) -> None:
    client = kept.connect("127.0.0.1:5000")
    put(kept, client, b"r rebind old e1", b"r rebind new e2", b"m publish e1 x")
    assert Figures(kept, HOST).journal()["pinned_by"] is None  # there is but one segment
    for _ in range(100):
        put(kept, client, b"m publish e2 " + b"x" * 100)
    assert len(kept.persistence.journal.segments.starts) > 1  # type: ignore[union-attr]
    assert Figures(kept, HOST).journal()["pinned_by"] == "old"
    kept.queues.purge(kept.queues.by_name[b"old"], 1)
    put(kept, client, b"d delete_queue new")
    assert Figures(kept, HOST).journal()["pinned_by"] is None


def test_days_left_are_those_of_growth_that_retention_does_not_stop(
    kept: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = DiskFigures(kept)
    journal = kept.persistence.journal
    assert journal is not None
    monkeypatch.setattr(journal, "space", lambda: (864_000, 1_000_000))
    sizes = journal.segments.sizes
    start = next(iter(sizes))
    for second in range(0, 100, 10):
        sizes[start] = 10_000 + second  # a byte a second
        disk.step(float(second))
        if second < 60:
            assert disk.days_left() is None
    assert disk.days_left() == 10
    monkeypatch.setattr(journal, "options", type(journal.options)(retain_bytes=500_000))
    assert disk.days_left() is None  # by then old segments will go
    assert 864_000 / DAY == 10


@pytest.mark.parametrize("kept_by", [None, b"m publish e x", b"h hold archive 0 --for=60"])
def test_above_the_limit_growth_counts_only_while_the_oldest_segment_is_kept(
    kept: Broker, monkeypatch: pytest.MonkeyPatch, kept_by: bytes | None
) -> None:
    client = kept.connect("127.0.0.1:5000")
    put(kept, client, b"r rebind q e", *([kept_by] if kept_by else []))
    disk = DiskFigures(kept)
    journal = kept.persistence.journal
    assert journal is not None
    monkeypatch.setattr(journal, "space", lambda: (864_000, 1_000_000))
    monkeypatch.setattr(journal, "options", type(journal.options)(retain_bytes=10_050))
    start = next(iter(journal.segments.sizes))
    for second in range(0, 100, 10):
        journal.segments.sizes[start] = 10_000 + second
        disk.step(float(second))
    assert disk.days_left() == (10 if kept_by else None)


def test_a_full_disk_is_named(kept: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Figures(kept, HOST)
    assert kept.persistence.journal is not None
    monkeypatch.setattr(kept.persistence.journal, "space", lambda: (4_000_000, 1_000_000_000))
    figures.sample()
    assert "The disk is nearly full: 3.81 MiB are left, 0.4 % of it." in figures.state()["health"]["sentence"]
    monkeypatch.setattr(kept.persistence.journal, "full", "the disk is full (0 bytes left)")
    figures.sample()
    health = figures.state()["health"]
    assert health["level"] == "trouble"
    assert "No messages are taken: the disk is full (0 bytes left)." in health["sentence"]


def test_after_a_restart_what_waits_is_as_old_as_it_is(tmp_path: Path) -> None:
    long_ago = time.time() - 5000
    for wall in (long_ago, long_ago + 4000):
        disk = RealDisk(tmp_path)
        broker = Broker(disk=disk, wall=lambda wall=wall: wall)  # type: ignore[misc]
        broker.recover()
        client = broker.connect("127.0.0.1:5000")
        if wall == long_ago:
            put(broker, client, b"r rebind q e", b"m1 publish e x")
        else:
            put(broker, client, b"m2 publish e x")
            figures = Figures(broker, HOST)
            figures.sample()
            [row] = figures.state()["queues"]
            assert (row["ready"], row["age"]) == (2, 4000)
        broker.disconnect(client)
        broker.close()
        disk.stop()
