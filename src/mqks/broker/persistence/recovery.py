"""A start: the queues are made again as they were.

What a queue is (its events, its pattern, when it goes) is a line of the journal. So a start reads the newest
checkpoint, then the journal's lines after it, which go to queues as when they came, then what progress says became of
the messages.
"""

import logging
from collections.abc import Callable, Sequence

from mqks.broker.errors import BadRequest
from mqks.broker.persistence.once import Once
from mqks.broker.persistence.persistence import Persistence
from mqks.broker.protocol import jsons
from mqks.broker.queues.exchange import Exchange
from mqks.broker.queues.queue import Definition, Queue
from mqks.broker.queues.queue_limits import QueueLimits
from mqks.broker.queues.queue_manager import QueueManager
from mqks.broker.timers import Timers
from mqks.core.hub import Core
from mqks.dtid import Dtids
from mqks.journal import progress
from mqks.journal.errors import JournalError
from mqks.journal.format import Header, time_of
from mqks.journal.index import Index
from mqks.journal.messages import take_once
from mqks.journal.progress import Checkpoint, Since
from mqks.journal.recovery import check_end, recover
from mqks.journal.retention import Hold
from mqks.journal.segments import Segments
from mqks.logs import Entry

log = logging.getLogger(__name__)

GoingOn = Callable[[int, int], None]

SAY_EVERY = 2.0  # seconds, while a start takes long


class Recovery:
    def __init__(
        self,
        core: Core,
        timers: Timers,
        new_dtid: Dtids,
        exchange: Exchange,
        queue_limits: QueueLimits,
        queues: QueueManager,
        once: Once,
        persistence: Persistence,
    ) -> None:
        self._core = core
        self._timers = timers
        self._new_dtid = new_dtid
        self._exchange = exchange
        self._queue_limits = queue_limits
        self._queues = queues
        self._once = once
        self._persistence = persistence
        self._holds: dict[bytes, Hold] = {}
        self._kept: dict[int, bytes] = {}  # snapshots of queues, by birth

    def run(self, *, grace: float = 60.0, salvage: bool = False, going_on: GoingOn | None = None) -> None:
        """Restore queues, holds and remembered ids. JournalError: that would lose what was confirmed.

        After the start a queue that goes when unused has at least `grace` seconds, so that its consumers can come back.
        If it takes long, `going_on` is called from time to time with the bytes that are done and those there are.
        """
        disk = self._persistence.disk
        if disk is None:
            return
        disk.lock()
        found = progress.find(disk, salvage)
        segments, index = Segments(disk), self._persistence.open_index(disk)
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
        for queue in self._queues.by_name.values():
            since = happened.pop(queue.birth, Since())
            self._core.snapshots.restore(queue, self._kept.pop(queue.birth, b""), b"".join(since.items), since.taken)
        self._core.snapshots.restored()
        self._check_held(segments, salvage)
        for lost in segments.given_up:
            self._core.seen.forget_between(*lost)
        progress.remove_stale(disk, found.stale)
        self._new_dtid.begin_after(max(journaled.dtid, found.checkpoint.dtid))
        # What progress needed and the journal lacks must not be given out again.
        needed = max((record.needs for record in told), default=0)
        position = max(journaled.position, needed + 1 if needed > journaled.end else 0)
        crc = journaled.crc if position == journaled.position else 0
        self._persistence.open_journal(disk, segments, index, position, crc, found.last + 1, self._holds)
        for queue in list(self._queues.by_name.values()):
            self._queue_limits.apply(queue, queue.bounds, at_any_cost=True)
            self._queues.watch_unused(queue, at_least=grace)
        if broken := self._persistence.broken:
            raise JournalError(broken)

    def _check_held(self, segments: Segments, salvage: bool) -> None:
        """Queues hold messages: are the files there?"""
        words = memoryview(self._core.log.extents()).cast("Q")
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
        self._core.snapshots.adopt(checkpoint.extents)
        for kept in checkpoint.queues:
            self._define(kept.birth, kept.definition)
            for place, count in progress.places(kept.snapshot):
                index.adopt(place, count)
        self._holds = {name: Hold(int(position), expires) for name, (position, expires) in checkpoint.holds.items()}
        self._kept = {kept.birth: kept.snapshot for kept in checkpoint.queues}
        self._once.restore(checkpoint.key, checkpoint.seen, index, salvage)

    def _say_progress(self, going_on: GoingOn | None) -> GoingOn:
        said = self._timers.clock()

        def say(done: int, total: int) -> None:
            nonlocal said
            if self._timers.clock() - said >= SAY_EVERY:
                said = self._timers.clock()
                percent = 100 * done // max(total, 1)
                log.info(Entry("reading the journal: {percent} % of {total} MB", percent=percent, total=total >> 20))
                if going_on:
                    going_on(done, total)

        return say

    def _replay_batch(self, header: Header, batch: memoryview) -> None:
        try:
            self._core.snapshots.replay(header.position, bytes(batch), time_of(header.dtid).timestamp())
        except (ValueError, BadRequest) as error:
            raise JournalError(
                f"the batch at position {header.position} is whole, but has a line that no mqksd has written: {error}"
            ) from error

    def replay(self, position: int, line: bytes) -> Sequence[Queue]:
        """A line of the journal that is no publish; answers the queues that it goes to."""
        _, action, rest = [*line.split(b" ", 2), b"", b""][:3]
        if action == b"send":
            return self._exchange.queues_for(jsons.loads(take_once(rest)[1]))
        if action == b"rebind":
            self._define(position, rest)
        elif action == b"delete_queue":
            if (queue := self._queues.by_name.get(rest)) is not None:
                if queue.birth in self._kept:  # what was in it then must be let go too
                    self._core.snapshots.restore(queue, self._kept.pop(queue.birth), b"", 0)
                self._queues.delete(queue)
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
        queue = self._queues.by_name.get(told.name)
        if queue is None:
            queue = self._queues.make(told.name)
        queue.birth = queue.birth or position
        queue.kept = definition
        self._exchange.set_events(queue, told.events)
        self._exchange.set_pattern(queue, told.pattern)
        queue.unused = told.unused
        queue.unused_is_sticky = told.unused_is_sticky
        queue.bounds = told.bounds
