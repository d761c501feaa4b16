"""How long syncs take, and how much disk there is: figures for whoever shows them."""

import errno

import pytest

from mqks.journal.timing import BUCKETS, Histogram
from tests.broker.on_disk import START, OnDisk


def test_each_time_counts_for_the_first_bucket_that_is_not_below_it() -> None:
    times = Histogram((0.1, 1.0, 10.0))
    for seconds in (0.0, 0.1, 0.11, 1.0, 9.0, 10.5, 100.0):
        times.add(seconds, 5.0 + seconds)
    assert times.counts == [2, 2, 1, 2]
    assert times.sum == pytest.approx(120.71)
    assert (times.count, times.last) == (7, 105.0)


def test_of_none_nothing_is_said() -> None:
    times = Histogram()
    assert times.buckets == BUCKETS == tuple(sorted(BUCKETS))
    assert (sum(times.counts), len(times.counts), times.count, times.last) == (0, len(BUCKETS) + 1, 0, None)


def test_a_sync_takes_from_when_it_is_asked_for_to_when_the_broker_hears_of_its_end() -> None:
    on_disk = OnDisk()
    on_disk.wait(0.2)
    journal = on_disk.broker.persistence.journal
    assert journal
    times = journal.sync_times
    before = times.count, times.sum
    on_disk.now = 10.0
    on_disk.say(on_disk.connect(), b"m publish --confirm e x")
    on_disk.now = 10.3
    assert (times.count, times.sum) == before, "it is on its way"
    assert times.last is None or times.last <= START + 10.0
    counts = list(times.counts)
    on_disk.work()
    assert times.count == before[0] + 1
    assert times.sum - before[1] == pytest.approx(0.3)
    assert times.last == START + 10.3
    changed = [bucket for bucket, (old, new) in enumerate(zip(counts, times.counts, strict=True)) if old != new]
    assert [times.buckets[bucket] for bucket in changed] == [0.5]
    assert times.count == journal.syncs


def test_a_sync_that_fails_has_no_time() -> None:
    on_disk = OnDisk()
    journal = on_disk.broker.persistence.journal
    assert journal
    before = journal.sync_times.count
    on_disk.say(on_disk.connect(), b"m publish --confirm e x")
    on_disk.disk.fail("sync", errno.EIO)
    on_disk.work()
    assert journal.broken
    assert journal.sync_times.count == before


def test_space_is_what_the_disk_tells() -> None:
    on_disk = OnDisk()
    assert on_disk.broker.persistence.journal
    free, total = on_disk.broker.persistence.journal.space()
    assert (free, total) == on_disk.disk.space()
    assert 0 < free < total == 1 << 40
