"""The broker's state on disk: the journal once it is open, checkpoints, holds, and messages to look at.

A broker without a disk has no journal. All that is in a queue comes from the journal's messages and from progress
(core/keeping.pyx); how a start gets it back is in `recovery`.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial

from mqks.broker.capacity import Capacity
from mqks.broker.connections.client import Client
from mqks.broker.connections.connections import Connections
from mqks.broker.errors import BadRequest
from mqks.broker.limits import Limits
from mqks.broker.persistence.definitions import DefinitionLog
from mqks.broker.persistence.once import Once
from mqks.broker.queues.queue import Queue
from mqks.broker.queues.queue_manager import QueueManager
from mqks.broker.slices import Slices
from mqks.broker.timers import Timers
from mqks.core.hub import Core
from mqks.core.parts import Queue as CoreQueue
from mqks.dtid import Dtids
from mqks.journal.disk import Disk
from mqks.journal.errors import JournalError
from mqks.journal.index import ONCE, QUEUES, Index
from mqks.journal.journal import Journal, Options
from mqks.journal.messages import is_message
from mqks.journal.progress import Checkpoint, Snapshots
from mqks.journal.retention import Hold
from mqks.journal.segments import Segments
from mqks.logs import Entry

log = logging.getLogger(__name__)

SAY_LOST_EVERY = 2.0  # seconds
MOST_HOLDS = 1000
LONGEST_HOLD = 256  # bytes of a hold's name: each checkpoint has them all


class Persistence:
    def __init__(
        self,
        core: Core,
        timers: Timers,
        slices: Slices,
        wall: Callable[[], float],
        new_dtid: Dtids,
        limits: Limits,
        capacity: Capacity,
        connections: Connections,
        definitions: DefinitionLog,
        queues: QueueManager,
        once: Once,
        disk: Disk | None,
        options: Options,
    ) -> None:
        # The journal reads these three: see its `Owner`.
        self.core = core
        self.timers = timers
        self.slices = slices
        self._wall = wall
        self._new_dtid = new_dtid
        self._limits = limits
        self._capacity = capacity
        self._connections = connections
        self._definitions = definitions
        self._queues = queues
        self._once = once
        self._options = options
        self._index: Index | None = None
        self._lost: Counter[bytes] = Counter()  # messages, by queue, that were not told of yet
        self._readers: list[Callable[[], None]] = []  # who is told when there is more to read
        self.disk = disk
        self.journal: Journal | None = None

    @property
    def broken(self) -> str | None:
        """Why the broker has to stop, if it has to."""
        return self.journal.broken if self.journal else None

    # ── start and stop ──

    def open_index(self, disk: Disk) -> Index:
        """Parts of long queues can be read from now on."""
        self._index = Index(disk)
        return self._index

    def open_journal(
        self,
        disk: Disk,
        segments: Segments,
        index: Index,
        position: int,
        crc: int,
        number: int,
        holds: dict[bytes, Hold],
    ) -> None:
        """The journal goes on at this position, after a batch that has this checksum; `number` is that of the first log
        of progress."""
        options = self._options
        self.journal = Journal(self, disk, options, segments, index, number, position)
        self._definitions.open()
        self.core.persistence.open_journal(
            self.journal,
            position,
            crc,
            b" segment 1 %s\n" % options.fsync.encode(),
            segment_size=options.segment_size,
            tail_memory=options.tail_memory,
            spill_after=options.spill_after,
        )
        # After a gap the new segment is not on disk yet, and its first batches must not say so of where it begins.
        self.core.persistence.synced = max(map(segments.end_of, segments.starts), default=0)
        self.journal.retention.wall = self._wall
        self.journal.retention.charge = self.core.account.charge
        self.journal.retention.keep(holds)
        self.core.persistence.mark()  # so that there is a segment, and what is wrong with the disk shows at once
        self.core.persistence.write_out()
        self.journal.checkpoint()
        if self.broken:
            raise JournalError(self.broken)
        self.journal.retain_from_time_to_time()

    def poll(self) -> None:
        """Something may have ended in the background."""
        if self.journal:
            self.journal.poll()

    def close(self) -> None:
        """Stop in order; all clients are gone."""
        if self.journal:
            self.journal.close()

    # ── writing down ──

    def hold(self, name: bytes, position: int, seconds: float) -> None:
        """Keep the journal from this position on, until then."""
        if self.journal is None:
            raise BadRequest("there is no journal to hold: the broker runs with --memory")
        retention = self.journal.retention
        if name in retention.holds:  # that it may be moved, or end, is what frees the disk
            self._capacity.check_freeing()
        else:
            self._capacity.check_room()
            if len(name) > LONGEST_HOLD:
                raise BadRequest("the name of a hold is too long", f"it may have {LONGEST_HOLD} bytes")
            if len(retention.holds) >= MOST_HOLDS:
                retention.forget_expired()
            if len(retention.holds) >= MOST_HOLDS:
                raise self._limits.reached("holds", str(MOST_HOLDS))
        expires = self._wall() + seconds
        self.core.router.record(b"%s hold %s %d %.3f\n" % (self._new_dtid(), name, position, expires))
        retention.keep({name: Hold(position, expires)})

    def checkpoint(self, number: int) -> Checkpoint:
        """The state of all queues, when all is written."""
        assert self._index
        for place in self._once.take_left():
            self._index.release(place)
        return Checkpoint(
            number,
            position=self.core.log.written,
            crc=self.core.log.previous,
            dtid=self._new_dtid(),
            holds={name: [hold.position, hold.expires] for name, hold in self.journal.retention.holds.items()}
            if self.journal
            else {},
            queues=self._snapshots(),
            extents=self.core.log.extents(),
            key=self.core.seen.key,
            seen=self._once.snapshot(partial(self.spill, kind=ONCE)),
        )

    def _snapshots(self) -> Snapshots:
        queues = list(self._queues.by_name.values())
        return Snapshots(
            [queue.name for queue in queues],
            [queue.birth for queue in queues],
            [queue.kept or queue.definition() for queue in queues],
            *self.core.snapshots.take(queues),
        )

    def oldest_queue(self) -> str | None:
        """The queue that keeps the oldest segment from being removed."""
        held = ((self.core.snapshots.oldest(queue, True), queue.name) for queue in self._queues.by_name.values())
        _, name = min(((position, name) for position, name in held if position is not None), default=(0, None))
        return None if name is None else ascii(name.decode("utf-8", "replace"))

    def drop_held(self) -> None:
        """The disk failed. What it has of the requests that wait for it is unknown: neither `ok` nor `error` would be
        true, so their connections close without an answer."""
        dropped = self.core.confirmations.drop_held()
        if dropped:
            said = "{requests} requests waited for the disk: their connections close without an answer"
            log.error(Entry(said, requests=sum(dropped.values())))
        for client in dropped:
            assert isinstance(client, Client)
            self._connections.cut_short(client)

    # ── messages to look at ──

    def when_it_grows(self, read: Callable[[], None]) -> None:
        """Call this whenever there is more of the journal to see."""
        self._readers.append(read)

    def lines(self, positions: list[int], most: int = sys.maxsize) -> dict[int, tuple[bytes, int]]:
        """The messages that begin at these positions, as the log has them, without newline: those in memory. Of each
        `most` bytes, and how many it really has. One whose id alone fills these bytes is left out."""
        found = ((position, self.core.log.line_at(position, most)) for position in positions)
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
        assert self._index
        return self.journal.bring_back(place, count) if self.journal else self._index.bring_back(place, count)

    def look_at(self, place: int, count: int) -> bytes | None:
        """A part of a long queue, to be seen only: what is wrong with it matters when it is brought back."""
        assert self._index
        try:
            return self._index.read(place, count)
        except (OSError, JournalError):
            return None

    def grew(self) -> None:
        """There is more of the journal to see."""
        for read in self._readers:
            read()

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
            self.timers.set("lost", SAY_LOST_EVERY, self._say_lost)

    def _say_lost(self) -> None:
        for name, count in self._lost.items():
            said = "messages of queue {queue!a} that are lost, since the journal lacks them: {messages}"
            log.error(Entry(said, queue=name, messages=count))
        self._lost.clear()
