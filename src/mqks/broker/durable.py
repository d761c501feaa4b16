"""The broker's state on disk: queues are written down when they change, and made again at a start.

What a queue is (its events, its pattern, when it goes) is a line of the journal; what is in it comes from the journal's
messages and from progress (core/keeping.pyx). Without a disk, all that would keep something does nothing.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mqks.broker.connections.client import Client
from mqks.broker.connections.mistakes import Mistakes
from mqks.broker.errors import BadRequest
from mqks.broker.limits import Limits
from mqks.broker.operations import Operations
from mqks.broker.persistence.once import Dedup, Once
from mqks.broker.protocol import jsons
from mqks.broker.queues.queue import Definition, Queue
from mqks.core.hub import Core
from mqks.core.parts import Queue as CoreQueue
from mqks.dtid import Dtids
from mqks.journal import progress
from mqks.journal.disk import Disk
from mqks.journal.errors import JournalError
from mqks.journal.format import Header, time_of
from mqks.journal.index import ONCE, QUEUES, Index
from mqks.journal.journal import Journal, Options
from mqks.journal.messages import is_message, take_once
from mqks.journal.progress import Checkpoint, Since, Snapshots
from mqks.journal.recovery import check_end, recover
from mqks.journal.retention import Hold
from mqks.journal.segments import Segments
from mqks.logs import Entry

if TYPE_CHECKING:
    from mqks.broker.auth.entrance import Entrance
    from mqks.broker.persistence.history import Histories

log = logging.getLogger(__name__)

GoingOn = Callable[[int, int], None]

SAY_EVERY = 2.0  # seconds, while a start takes long
MOST_HOLDS = 1000
LONGEST_HOLD = 256  # bytes of a hold's name: each checkpoint has them all


class Durable(Operations):
    histories: Histories  # which the broker itself has; they need what is here
    entrance: Entrance  # likewise

    def __init__(
        self,
        core: Core,
        clock: Callable[[], float],
        wall: Callable[[], float],
        new_dtid: Dtids,
        disk: Disk | None,
        options: Options,
        dedup: Dedup,
        limits: Limits,
    ) -> None:
        super().__init__(core, clock, limits)
        self.once = Once(core.seen, self.timers, wall, dedup)
        self.wall = wall
        self.new_dtid = new_dtid
        self.mistakes = Mistakes(self.timers, new_dtid)
        self._disk = disk
        self._options = options
        self._holds: dict[bytes, Hold] = {}
        self._lost: Counter[bytes] = Counter()  # messages, by queue, that were not told of yet
        self._kept: dict[int, bytes] = {}  # snapshots of queues, by birth, during a start
        self.journal: Journal | None = None

    @property
    def broken(self) -> str | None:
        """Why the broker has to stop, if it has to."""
        return self.journal.broken if self.journal else None

    # ── start and stop ──

    def recover(self, *, grace: float = 60.0, salvage: bool = False, going_on: GoingOn | None = None) -> None:
        """Make all what it was. JournalError: that cannot be done without losing what was confirmed.

        After the start a queue that goes when unused has at least `grace` seconds, so that its consumers can come back.
        If it takes long, `going_on` is called from time to time with the bytes that are done and those there are.
        """
        if self._disk is None:
            return
        disk = self._disk
        disk.lock()
        found = progress.find(disk, salvage)
        segments, index = Segments(disk), Index(disk)
        self._index = index
        self._restore_checkpoint(found.checkpoint, index, salvage)
        logs = progress.read_logs(disk, found.logs, salvage)
        told = [record for one in logs for record in one.records]
        synced = max((record.journal_synced for record in told), default=0)
        journaled = recover(
            segments,
            found.checkpoint.position,
            found.checkpoint.crc,
            self._replay_batch,
            self._say_progress(going_on),
            salvage,
            synced,
        )
        if journaled.lines and not found.checkpoint.number:
            log.warning("there is no checkpoint: queues are made anew from the journal, and messages may come again")
        segments.make_safe(max(journaled.synced, found.checkpoint.position))
        happened = progress.replay(disk, logs, check_end(segments, journaled.end, synced, salvage))
        for queue in self.queues.values():
            since = happened.pop(queue.birth, Since())
            self.core.restore(queue, self._kept.pop(queue.birth, b""), b"".join(since.items), since.taken)
        self.core.restored()
        self._check_held(segments, salvage)
        for lost in segments.given_up:
            self.core.seen.forget_between(*lost)
        progress.remove_stale(disk, found.stale)
        self.new_dtid.begin_after(max(journaled.dtid, found.checkpoint.dtid))
        # What progress needed and the journal lacks must not be given out again.
        needed = max((record.needs for record in told), default=0)
        position = max(journaled.position, needed + 1 if needed > journaled.end else 0)
        self._open(segments, index, position, journaled.crc if position == journaled.position else 0, found.last + 1)
        for queue in list(self.queues.values()):
            self.overflow.apply(queue, queue.bounds, at_any_cost=True)
            self.watch_unused(queue, at_least=grace)
        if self.broken:
            raise JournalError(self.broken)

    def _check_held(self, segments: Segments, salvage: bool) -> None:
        """Queues hold messages: are the files there?"""
        words = memoryview(self.core.extents()).cast("Q")
        for at in range(0, len(words), 3):
            for start, end in segments.missing(words[at], words[at + 1]):
                if not segments.is_lost(start, end):
                    if not salvage:
                        raise JournalError(
                            f"the journal has no file with positions {start} to {end}, where queues have messages: put "
                            "the missing file back, or start with --salvage"
                        )
                    segments.give_up(start, end)
                    said = "positions {start} to {end} are lost: the journal has no file with them"
                    log.warning(Entry(said, start=start, end=end))

    def _restore_checkpoint(self, checkpoint: Checkpoint, index: Index, salvage: bool) -> None:
        """The queues as they were then. What is in them comes when all else is known."""
        self.core.adopt(checkpoint.extents)
        for kept in checkpoint.queues:
            self._define(kept.birth, kept.definition)
            for place, count in progress.places(kept.snapshot):
                index.adopt(place, count)
        self._holds = {name: Hold(int(position), expires) for name, (position, expires) in checkpoint.holds.items()}
        self._kept = {kept.birth: kept.snapshot for kept in checkpoint.queues}
        self.once.restore(checkpoint.key, checkpoint.seen, index, salvage)

    def _say_progress(self, going_on: GoingOn | None) -> GoingOn:
        said = self.timers.clock()

        def say(done: int, total: int) -> None:
            nonlocal said
            if self.timers.clock() - said >= SAY_EVERY:
                said = self.timers.clock()
                percent = 100 * done // max(total, 1)
                log.info(Entry("reading the journal: {percent} % of {total} MB", percent=percent, total=total >> 20))
                if going_on:
                    going_on(done, total)

        return say

    def _open(self, segments: Segments, index: Index, position: int, crc: int, number: int) -> None:
        assert self._disk is not None
        options = self._options
        self.journal = Journal(self, self._disk, options, segments, index, number, position)
        self.core.open_journal(
            self.journal,
            position,
            crc,
            b" segment 1 %s\n" % options.fsync.encode(),
            segment_size=options.segment_size,
            tail_memory=options.tail_memory,
            spill_after=options.spill_after,
        )
        # After a gap the new segment is not on disk yet, and its first batches must not say so of where it begins.
        self.core.synced = max(map(segments.end_of, segments.starts), default=0)
        self.journal.retention.wall = self.wall
        self.journal.retention.charge = self.core.charge
        self.journal.retention.keep(self._holds)
        self.core.mark()  # so that there is a segment, and what is wrong with the disk shows at once
        self.core.write_out()
        self.journal.checkpoint()
        if self.broken:
            raise JournalError(self.broken)
        self.journal.retain_from_time_to_time()

    def poll_disk(self) -> None:
        """Something may have ended in the background."""
        if self.journal:
            self.journal.poll()

    def close(self) -> None:
        """Stop in order; all clients are gone."""
        if self.journal:
            self.journal.close()

    # ── writing down ──

    def check_writing(self) -> None:
        """May a queue that is there be written down anew?"""
        if self.journal is not None:
            self.check_room()

    def keep(self, queue: Queue) -> None:
        """The queue is new or may have changed."""
        if self.journal is None:
            return
        definition = queue.definition()
        if definition != queue.kept:
            position = self.core.record(b"%s rebind %s\n" % (self.new_dtid(), definition))
            queue.kept = definition
            queue.birth = queue.birth or position

    def forget(self, queue: Queue) -> None:
        """The queue is gone."""
        if self.journal is not None:
            self.core.record(b"%s delete_queue %s\n" % (self.new_dtid(), queue.name))

    def hold(self, name: bytes, position: int, seconds: float) -> None:
        """Keep the journal from this position on, until then."""
        if self.journal is None:
            raise BadRequest("there is no journal to hold: the broker runs with --memory")
        retention = self.journal.retention
        if name in retention.holds:  # that it may be moved, or end, is what frees the disk
            self.check_freeing()
        else:
            self.check_room()
            if len(name) > LONGEST_HOLD:
                raise BadRequest("the name of a hold is too long", f"it may have {LONGEST_HOLD} bytes")
            if len(retention.holds) >= MOST_HOLDS:
                retention.forget_expired()
            if len(retention.holds) >= MOST_HOLDS:
                raise self.limits.reached("holds", str(MOST_HOLDS))
        expires = self.wall() + seconds
        self.core.record(b"%s hold %s %d %.3f\n" % (self.new_dtid(), name, position, expires))
        retention.keep({name: Hold(position, expires)})

    def checkpoint(self, number: int) -> Checkpoint:
        """The state of all queues, when all is written."""
        for place in self.once.take_left():
            self._index.release(place)
        return Checkpoint(
            number,
            position=self.core.written_position,
            crc=self.core.last_crc,
            dtid=self.new_dtid(),
            holds={name: [hold.position, hold.expires] for name, hold in self.journal.retention.holds.items()}
            if self.journal
            else {},
            queues=self._snapshots(),
            extents=self.core.extents(),
            key=self.core.seen.key,
            seen=self.once.snapshot(partial(self.spill, kind=ONCE)),
        )

    def _snapshots(self) -> Snapshots:
        queues = list(self.queues.values())
        return Snapshots(
            [queue.name for queue in queues],
            [queue.birth for queue in queues],
            [queue.kept or queue.definition() for queue in queues],
            *self.core.snapshots(queues),
        )

    def oldest_queue(self) -> str | None:
        """The queue that keeps the oldest segment from being removed."""
        held = ((self.core.oldest(queue, True), queue.name) for queue in self.queues.values())
        _, name = min(((position, name) for position, name in held if position is not None), default=(0, None))
        return None if name is None else ascii(name.decode("utf-8", "replace"))

    def drop_held(self) -> None:
        """The disk failed. What it has of the requests that wait for it is unknown: neither `ok` nor `error` would be
        true, so their connections close without an answer."""
        dropped = self.core.drop_held()
        if dropped:
            said = "{requests} requests waited for the disk: their connections close without an answer"
            log.error(Entry(said, requests=sum(dropped.values())))
        for client in dropped:
            assert isinstance(client, Client)
            self.entrance.cut_short(client)

    # ── messages to look at ──

    def lines(self, positions: list[int], most: int = sys.maxsize) -> dict[int, tuple[bytes, int]]:
        """The messages that begin at these positions, as the log has them, without newline: those in memory. Of each
        `most` bytes, and how many it really has. One whose id alone fills these bytes is left out."""
        found = ((position, self.core.line_at(position, most)) for position in positions)
        return {position: line for position, line in found if line is not None and is_message(line[0])}

    def read_lines(self, positions: list[int], most: int = sys.maxsize) -> dict[int, tuple[bytes, int]]:
        """Those in the journal's files, likewise. This waits for the disk: any thread may call it."""
        found = self.journal.segments.lines_at(positions, most) if self.journal else {}
        return {position: line for position, line in found.items() if is_message(line[0])}

    def time_of(self, position: int) -> float | None:
        """When the message came, in seconds since 1970, as the journal tells it: a small read of a file."""
        return self.journal.segments.time_at(position) if self.journal else None

    # ── what the core asks for ──

    def spill(self, items: bytes, kind: str = QUEUES) -> int:
        assert self.journal
        return self.journal.spill(items, kind)

    def bring_back(self, place: int, count: int) -> bytes | None:
        return self.journal.bring_back(place, count) if self.journal else self._index.bring_back(place, count)

    def look_at(self, place: int, count: int) -> bytes | None:
        """A part of a long queue, to be seen only: what is wrong with it matters when it is brought back."""
        try:
            return self._index.read(place, count)
        except (OSError, JournalError):
            return None

    def grew(self) -> None:
        """There is more of the journal to see."""
        self.histories.grew()

    def load(self, start: int, size: int) -> None:
        assert self.journal
        self.journal.load(start, size)

    def read_now(self, start: int, size: int) -> bytes | None:
        return self.journal.read_now(start, size) if self.journal else None

    def lost(self, queue: CoreQueue) -> None:
        """The disk no longer has this message, which a salvage gave up. They are many at a time: told together."""
        assert isinstance(queue, Queue)
        self._lost[queue.name] += 1
        if not self.timers.is_set("lost"):
            self.timers.set("lost", SAY_EVERY, self._say_lost)

    def _say_lost(self) -> None:
        for name, count in self._lost.items():
            said = "messages of queue {queue!a} that are lost, since the journal lacks them: {messages}"
            log.error(Entry(said, queue=name, messages=count))
        self._lost.clear()

    # ── coming back ──

    def _replay_batch(self, header: Header, batch: memoryview) -> None:
        try:
            self.core.replay(header.position, bytes(batch), time_of(header.dtid).timestamp())
        except (ValueError, BadRequest) as error:
            raise JournalError(
                f"the batch at position {header.position} is whole, but has a line that no mqksd has written: {error}"
            ) from error

    def replay(self, position: int, line: bytes) -> Sequence[Queue]:
        """A line of the journal that is no publish; answers the queues that it goes to."""
        _, action, rest = [*line.split(b" ", 2), b"", b""][:3]
        if action == b"send":
            return self.exchange.queues_for(jsons.loads(take_once(rest)[1]))
        if action == b"rebind":
            self._define(position, rest)
        elif action == b"delete_queue":
            if (queue := self.queues.get(rest)) is not None:
                if queue.birth in self._kept:  # what was in it then must be let go too
                    self.core.restore(queue, self._kept.pop(queue.birth), b"", 0)
                self.delete_queue(queue)
        elif action == b"hold":
            name, held, expires = rest.split(b" ")
            self._holds[name] = Hold(int(held), float(expires))
        else:
            raise JournalError(
                f"the journal has an action at position {position} that this mqksd does not know: {action!r}"
            )
        return ()

    def _define(self, position: int, definition: bytes) -> None:
        """A queue as the journal tells it; if there was none of the name, it was born at this position."""
        told = Definition.read(definition)
        queue = self.queues.get(told.name)
        if queue is None:
            queue = self.make_queue(told.name)
        queue.birth = queue.birth or position
        queue.kept = definition
        self.exchange.set_events(queue, told.events)
        self.exchange.set_pattern(queue, told.pattern)
        queue.unused = told.unused
        queue.unused_is_sticky = told.unused_is_sticky
        queue.bounds = told.bounds
