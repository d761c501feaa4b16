"""`--once` with a disk in hand: when a duplicate is confirmed, and what is remembered after a crash.

Two things must never be: an id that is known though its message is lost, and one that is confirmed, and young enough,
and forgotten.
"""

import errno
import json
import random
import struct
from collections.abc import Iterator

import pytest

from mqks.broker import Broker
from mqks.core.crc import crc32
from mqks.journal import JournalError
from tests.journal.test_confirm import Started
from tests.sim.disk import FakeDisk

PART_BITS = 2  # so that a few ids fill some parts
WINDOW = 3600.0


class Life:
    """A broker on a disk that works when told to, and one client."""

    def __init__(
        self,
        disk: FakeDisk | None = None,
        *,
        now: float = 1_700_000_000.0,
        ahead: float = 0.0,  # how much the clock on the wall is
        salvage: bool = False,
        dedup_count: int = 1_000_000,
    ) -> None:
        self.disk = disk or FakeDisk(random.Random(1))
        self.now = now
        self.ahead = ahead
        self.broker = Broker(
            disk=self.disk,
            clock=self.clock,
            wall=lambda: self.now + self.ahead,
            dedup_part_bits=PART_BITS,
            dedup_window=WINDOW,
            dedup_count=dedup_count,
        )
        self.broker.recover(salvage=salvage)
        self.client = self.broker.connect("127.0.0.1:1")
        self.work()

    def clock(self) -> float:
        return self.now

    def work(self) -> list[bytes]:
        """All that the disk has to do is done; what is said then."""
        said = b""
        for _ in range(3):
            self.broker.turn()
            while self.disk.complete(urgent=True) or self.disk.complete(urgent=False):
                self.broker.poll_disk()
            said += self.client.pending()
            self.broker.sent(self.client, self.client.pending_size)
        return said.splitlines()

    def say(self, *requests: bytes) -> list[bytes]:
        self.broker.feed(self.client, b"".join(request + b"\n" for request in requests))
        return self.work()

    def takes(self, *ids: bytes) -> list[bytes]:
        """Those of them that are taken, of which the journal tells; each is confirmed."""
        before = self.lines()
        assert self.say(*(b"%s publish --once --confirm e1 d" % id for id in ids)) == [b"%s ok " % id for id in ids]
        return [line.split(b" ")[0] for line in self.lines()[len(before) :]]

    def lines(self) -> list[bytes]:
        """The messages of the journal."""
        text = b"".join(self.disk.written("journal").values())
        return [line for line in text.split(b"\n") if line.split(b" ")[1:2] in ([b"publish"], [b"send"])]

    def checkpoint(self) -> None:
        assert self.broker.persistence.journal
        self.broker.persistence.journal.checkpoint()
        self.work()

    @property
    def remembered(self) -> int:
        return len(self.broker.core.seen)

    def killed(self, *, power_loss: bool = True, after: float = 1.0, dedup_count: int = 1_000_000) -> "Life":
        """The life that follows on a crash."""
        self.disk.crash(power_loss=power_loss)
        return Life(self.disk, now=self.now + after, dedup_count=dedup_count)

    def stopped(self) -> "Life":
        self.broker.disconnect(self.client)
        self.disk.works_by_itself = True
        self.broker.close()
        self.disk.works_by_itself = False
        self.disk.crash(power_loss=True)
        return Life(self.disk, now=self.now + 1)


def ids(first: int, end: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, end)]


# ── when a duplicate is confirmed ──


def test_the_ok_of_a_duplicate_waits_for_the_sync_of_the_first() -> None:
    started = Started()
    other = started.broker.connect("127.0.0.1:2")
    assert started.say(b"m1 publish --once e1 d1") == []
    assert started.say(b"m1 publish --once --confirm e1 d1", client=other) == []
    for _ in range(3):
        started.broker.poll_disk()
        assert started.say(b"p1 ping", client=other) == [b"p1 ok "]
    assert b"m1 publish --once e1 d1\n" not in started.journal()
    started.sync()
    assert started.said(other) == [b"m1 ok "]
    assert started.journal().count(b"m1 publish --once e1 d1\n") == 1


def test_that_of_a_duplicate_whose_first_is_on_disk_comes_at_once() -> None:
    started = Started()
    started.say(b"m1 publish --once --confirm e1 d1")
    assert started.sync() == [b"m1 ok "]
    assert started.say(b"m1 publish --once --confirm e1 d1", b's1 send {"x": 1}') == [b"m1 ok "]
    assert started.sync() == [b"s1 ok "]


def test_but_in_order_with_what_waits() -> None:
    started = Started()
    started.say(b"m1 publish --once --confirm e1 d1")
    assert started.sync() == [b"m1 ok "]
    assert started.say(b"m2 publish --confirm e1 d2", b"m1 publish --once --confirm e1 d1") == []
    assert started.sync() == [b"m2 ok ", b"m1 ok "]


def test_a_sync_that_fails_confirms_no_duplicate() -> None:
    started = Started()
    started.say(b"m1 publish --once e1 d1", b"m1 publish --once --confirm e1 d1")
    started.disk.fail("sync", errno.EIO)
    assert started.sync() == []


def test_one_that_a_full_disk_refused_is_not_remembered() -> None:
    life = Life()
    life.broker.core.log.refusing = True
    (refused,) = life.say(b"m1 publish --once --confirm e1 d1")
    assert refused.startswith(b"m1 error ")
    life.broker.core.log.refusing = False
    assert life.takes(b"m1") == [b"m1"]


def test_one_that_was_taken_and_could_not_be_written_yet_stays_one() -> None:
    """Its publisher is told nothing, and publishes again; when the disk has room there is one line."""
    life = Life()
    life.say(b"s1 subscribe q1 e1")
    life.disk.fail("write", errno.ENOSPC)
    assert life.say(b"m1 publish --once --confirm e1 d1") == []
    while life.broker.core.log.refusing:
        life.now += 1
        life.broker.tick()
        life.work()
    assert life.say(b"m1 publish --once --confirm e1 d1") == [b"m1 ok "]
    assert life.lines() == [b"m1 publish --once e1 d1"]
    assert life.broker.queues.by_name[b"q1"].ready_count == 1


# ── the journal ──


def test_the_flag_stays_in_the_journal_and_confirm_does_not() -> None:
    life = Life()
    life.say(
        b"m1 publish --once e1 d1",
        b"m2 publish --confirm --once=a e1 d2",
        b"m3 publish --once=b --confirm e1",
        b's1 send --confirm --once=c {"event": "e1"}',
        b"s2 send --once {}",
        b"m1 publish --once --confirm e2 again",
        b"m4 publish --confirm e1 --once",
    )
    assert life.lines() == [
        b"m1 publish --once e1 d1",
        b"m2 publish --once=a e1 d2",
        b"m3 publish --once=b e1 ",
        b's1 send --once=c {"event": "e1"}',
        b"s2 send --once {}",
        b"m4 publish e1 --once",
    ]


def test_history_shows_messages_without_the_flag() -> None:
    life = Life()
    life.say(b"m1 publish --once=a e1 d1", b's1 send --once {"event": "e2"}', b"m2 publish e3 --once")
    *lines, _ = life.say(b"h1 history earliest")
    assert [line.split(b" ", 3)[3] for line in lines] == [
        b"m1 event=e1 d1",
        b's1 event=e2 {"event": "e2"}',
        b"m2 event=e3 --once",
    ]
    *lines, _ = life.say(b"h1 history earliest --events=e1")
    assert [line.split(b" ", 3)[3] for line in lines] == [b"m1 event=e1 d1"]


def test_after_a_restart_messages_are_delivered_without_the_flag() -> None:
    life = Life()
    life.say(
        b"s1 subscribe --confirm q1 e1", b'r1 recv {"queue": "q2", "pattern": {}, "delete_queue_when_unused": false}'
    )
    life.say(
        b'd1 delete_receiver {"receiver_id": "r1"}', b"m1 publish --once=a e1 d1", b's1 send --once {"event": "e1"}'
    )
    life = life.killed()
    assert life.say(b"c1 consume q1") == [b"c1 ok m1 event=e1 d1", b'c1 ok s1 event=e1 {"event": "e1"}']
    recv = b'r1 recv {"queue": "q2", "pattern": {}, "delete_queue_when_unused": false}'
    assert life.say(recv) == [
        b"r1 ok ",
        b'r1 ok m1 {"event": "e1", "data": "d1"}',
        b'r1 ok s1 {"event": "e1"}',
    ]


# ── restarts ──


@pytest.mark.parametrize("published", [1, 3, 4, 5, 30])
@pytest.mark.parametrize("checkpoints", [(), (0,), (2,), (4,), (3, 17), (30,)], ids=str)
def test_a_crash_forgets_nothing_that_was_confirmed(published: int, checkpoints: tuple[int, ...]) -> None:
    """From checkpoints, from the index that they name, from the journal after them."""
    life = Life()
    for number in range(published):
        if number in checkpoints:
            life.checkpoint()
        assert life.takes(b"m%d" % number) == [b"m%d" % number]
    for _ in range(3):
        life = life.killed()
        assert life.remembered >= published
        assert life.takes(*ids(0, published)) == []
    life = life.stopped()
    assert life.takes(*ids(0, published + 1)) == ids(published, published + 1)


def test_scopes_and_both_dialects_come_back() -> None:
    life = Life()
    life.say(b"m1 publish --once=a e1 d", b'm2 send --once=b {"x": 1}', b"m3 publish --once e1 d", b"m4 send --once {}")
    again = [b"m1 publish --once=a e1 d", b'm2 send --once=b {"x": 1}', b"m3 publish --once e1 d", b"m4 send --once {}"]
    life = life.killed(power_loss=False)
    life.say(*again)
    life = life.stopped()
    life.say(*again)
    assert len(life.lines()) == 4
    life.say(b"m1 publish --once=b e1 d", b"m2 send --once {}", b"m3 publish --once=a e1 d")
    assert len(life.lines()) == 7


def test_what_a_power_loss_took_may_come_again() -> None:
    life = Life()
    life.takes(b"m1")
    life.broker.feed(life.client, b"m2 publish --once --confirm e1 d\n")
    life.broker.turn()  # written, and not synced
    life.disk.crash(power_loss=True)
    life = Life(life.disk, now=life.now + 1)
    survived = any(line.startswith(b"m2 ") for line in life.lines())
    assert life.takes(b"m1", b"m2") == ([] if survived else [b"m2"])


@pytest.mark.parametrize("seed", range(30))
def test_so_it_is_wherever_the_power_goes(seed: int) -> None:
    """What the journal has is remembered, and nothing else is."""
    rng = random.Random(seed)
    life = Life(FakeDisk(rng))
    for number in range(rng.randrange(1, 30)):
        life.broker.feed(life.client, b"m%d publish --once e1 d\n" % number)
        life.broker.turn()
        if rng.random() < 0.3 and life.broker.persistence.journal:
            life.broker.persistence.journal.checkpoint()
        for _ in range(rng.randrange(4)):
            life.disk.complete(urgent=rng.random() < 0.5)
            life.broker.poll_disk()
    life = life.killed()
    there = {line.split(b" ")[0] for line in life.lines()}
    assert life.takes(*ids(0, 30)) == [id for id in ids(0, 30) if id not in there]
    assert len(life.lines()) == 30


def test_the_window_counts_from_when_a_message_came_also_after_a_restart() -> None:
    life = Life()
    life.takes(*ids(0, 6))
    life.checkpoint()
    life.now += WINDOW / 2
    life.takes(*ids(6, 9))
    life = life.killed(after=WINDOW / 2)
    assert life.takes(*ids(0, 9)) == []
    life = life.killed(after=1)
    assert life.takes(*ids(0, 9)) == ids(0, 6)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_clock_that_was_ahead_before_a_restart(checkpoint: bool) -> None:
    """It makes nobody forget what came before, and nobody remember for longer than two windows."""
    life = Life()
    life.takes(*ids(0, 6))
    life.ahead = 1e6
    life.takes(b"m6")  # some of the others are old now, and leave
    life.ahead = 0.0
    known = [id for id in ids(0, 7) if id not in life.takes(*ids(0, 7))]
    assert known[0] != b"m0" and known[-1] == b"m6"
    if checkpoint:
        life.checkpoint()
    life = life.killed()
    assert life.takes(*known) == []
    for _ in range(2):
        life.now += WINDOW + 1
        life.broker.tick()
    assert life.remembered == 0
    assert life.takes(*known) == known


def test_another_count_after_a_restart() -> None:
    life = Life()
    life.takes(*ids(0, 30))
    life.checkpoint()
    life = life.killed(dedup_count=7)
    assert life.remembered == 7
    assert life.takes(*ids(23, 30)) == []
    assert life.takes(b"m22") == [b"m22"]
    life = life.killed(dedup_count=0)
    assert life.remembered == 0
    assert life.say(b"m1 publish --once e1 d")[0].startswith(b"m1 error ")
    life = life.killed()
    assert life.takes(*ids(0, 3)) == ids(0, 3)


# ── checkpoints ──


def test_a_checkpoint_names_what_is_full_and_has_the_rest() -> None:
    life = Life()
    sizes = []
    for number in range(0, 40, 4):
        life.takes(*ids(number, number + 4))
        life.checkpoint()
        sizes.append(max(map(len, files(life, "progress", ".checkpoint"))))
    assert sizes[-1] - sizes[0] < 10 * 32, "16 bytes for 4 ids, in place of 128"
    assert sum(map(len, files(life, "index", ".chunks"))) == 10 * (8 + 4 * 32), "each was written once"


def test_the_index_loses_files_of_ids_that_are_forgotten() -> None:
    life = Life()
    for number in range(0, 200, 10):
        life.takes(*ids(number, number + 10))
        life = life.killed()  # each life has a file of its own
        life.checkpoint()
    assert len(files(life, "index", ".chunks")) > 5
    life.now += WINDOW + 1
    life.broker.tick()
    assert life.remembered == 0
    life.takes(b"new")
    life.checkpoint()
    assert len(files(life, "index", ".chunks")) <= 1
    assert life.killed().takes(b"new") == []


def test_a_checkpoint_from_before_there_was_once_is_read() -> None:
    life = Life()
    life.say(b"s1 subscribe --confirm q1 e1", b"m1 publish --confirm e1 d1")
    life.checkpoint()
    [(name, data)] = [item for item in life.disk.content("progress").items() if item[0].endswith(".checkpoint")]
    head, _, rest = data[:-4].partition(b"\n")
    fields = json.loads(head)
    rest = rest[: len(rest) - fields.pop("seen")]
    del fields["key"]
    old = json.dumps(fields).encode() + b"\n" + rest
    life.disk.crash(power_loss=False)
    file = life.disk.open(f"progress/{name}")
    life.disk.truncate(file, 0)
    life.disk.write(file, old + struct.pack("<I", crc32(old)), 0)
    life.disk.sync(file)
    life = life.killed()
    assert life.broker.queues.by_name[b"q1"].ready_count == 1
    assert life.takes(b"m1") == [b"m1"]
    assert life.killed().takes(b"m1") == []


def test_damage_of_remembered_ids_is_refused_and_salvage_goes_on_without_them() -> None:
    life = Life()
    life.takes(*ids(0, 10))
    life.checkpoint()
    life.disk.crash(power_loss=False)
    [name] = life.disk.files("index")
    file = life.disk.open(f"index/{name}")
    (byte,) = life.disk.read(file, 1, 20)
    life.disk.write(file, bytes([byte ^ 1]), 20)
    life.disk.sync(file)
    with pytest.raises(JournalError, match=r"index/.* is damaged at byte 0: .* ids of --once"):
        life.killed()
    life.disk.crash(power_loss=False)
    life = Life(life.disk, now=life.now, salvage=True)
    assert life.takes(*ids(0, 10)) == ids(0, 4)


def test_ids_of_messages_that_a_salvage_gave_up_may_come_again() -> None:
    """All is in a checkpoint, and then the end of the journal is gone."""
    life = Life()
    life.takes(*ids(0, 10))
    life.checkpoint()
    life.disk.crash(power_loss=False)
    [name] = [name for name, data in life.disk.content("journal").items() if b"m5 publish" in data]
    file = life.disk.open(f"journal/{name}")
    life.disk.truncate(file, life.disk.content("journal")[name].index(b"m5 publish"))
    life.disk.sync(file)
    with pytest.raises(JournalError, match="the journal lacks"):
        life.killed()
    life.disk.crash(power_loss=False)
    life = Life(life.disk, now=life.now, salvage=True)
    left = life.disk.content("journal")[name]
    lost = [id for id in ids(0, 10) if b"\n%s publish" % id not in left]
    assert lost
    assert lost[-1] == b"m9"
    life.say(*(b"%s publish --once e1 d" % id for id in ids(0, 10)))
    assert life.remembered >= 10
    assert sorted(taken(life, name)) == sorted(lost)
    life = life.killed()
    life.say(*(b"%s publish --once e1 d" % id for id in ids(0, 10)))
    assert sorted(taken(life, name)) == sorted(lost)


def taken(life: Life, but: str) -> Iterator[bytes]:
    """The ids in all segments but this one."""
    for name, data in life.disk.content("journal").items():
        if name != but:
            yield from (line.split(b" ")[0] for line in data.split(b"\n") if b" publish --once " in line)


def files(life: Life, folder: str, ending: str) -> list[bytes]:
    return [data for name, data in life.disk.content(folder).items() if name.endswith(ending)]
