"""The journal as the broker keeps it: when what is written, synced, read back, put into a checkpoint, and removed.

The core tells what is to be written and asks for what it wants to read; `Journal` does it through the disk seam, starts
syncs in the background, and lets replies go when the sync that covers them is done. One sync is on its way at most;
whatever is written meanwhile shares the next one.

A full disk is waited for: nothing more is taken, and what was taken and could not be written is neither delivered nor
answered until it is. Progress has its room reserved before messages are taken, so it can be written when they cannot.
Any other error of the disk ends it all: `broken` says why, nothing is answered any more, and the broker has to stop.
"""

import itertools
import logging
import select
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mqks.core.hub import Core
from mqks.core.keeping import first_bad
from mqks.journal.disk import FULL, Disk, Done
from mqks.journal.errors import Damaged, JournalError
from mqks.journal.format import segment_name
from mqks.journal.index import Index
from mqks.journal.progress import Checkpoint, Log, Logs, remove_before
from mqks.journal.retention import Retention, bytes_to_retain
from mqks.journal.segments import Piece, Segments
from mqks.journal.timing import Histogram
from mqks.logs import Entry

log = logging.getLogger(__name__)

LAZY = 0.1  # seconds until that is synced for which nobody waits, and until readers are told of a sync
MOST_REMOVED = 64  # segments at once: each is looked into before it goes
LOOK_AT_AGE = 60.0  # seconds between looks for segments that are too old
RETRY = 1.0  # seconds between looks at a disk that was full
WRITING = 5  # units of work for a piece of a checkpoint (see Slices),
WRITTEN = 40  # and so many bytes of it are one more


class Timers(Protocol):
    @property
    def clock(self) -> Callable[[], float]: ...

    def set(self, key: Hashable, seconds: float, action: Callable[[], None]) -> None: ...

    def is_set(self, key: Hashable) -> bool: ...


class Slices(Protocol):
    """Does what is long in several turns."""

    def start(self, job: Iterator[int]) -> None: ...


class Owner(Protocol):
    """Whoever has the queues."""

    core: Core

    @property
    def timers(self) -> Timers: ...

    @property
    def slices(self) -> Slices: ...

    def checkpoint(self, number: int) -> Checkpoint: ...

    def drop_held(self) -> None: ...

    def grew(self) -> None: ...

    def oldest_queue(self) -> str | None: ...


@dataclass(frozen=True)
class Options:
    fsync: str = "always"  # or interval, never
    interval: float = 1.0  # seconds between syncs, where the mode is interval
    segment_size: int = 64 << 20
    tail_memory: int = 128 << 20  # bytes of the log that stay in memory
    spill_after: int = 16384  # messages ready in a queue, beyond which its index goes to disk
    checkpoint_bytes: int = 256 << 20  # of journal between two checkpoints; of progress a quarter of that
    retain_bytes: int = 0  # of all segments; 0: a fifth of the disk
    retain_age: float = 7 * 86400.0
    folder: str = ""  # where all is, for those who ask
    min_free: int = 0  # bytes of the disk that are left to others, and to what acks and checkpoints need


class Journal:
    def __init__(
        self, owner: Owner, disk: Disk, options: Options, segments: Segments, index: Index, number: int, position: int
    ) -> None:
        """`number` is that of the first log, `position` that of the first segment that is written."""
        self._owner = owner
        self._core = owner.core
        self._timers = owner.timers
        self._disk = disk
        self.options = options
        self.segments = segments
        self.index = index
        self.retention = Retention(segments, bytes_to_retain(options.retain_bytes, disk.space()[1]), options.retain_age)
        # What a start needs stays, so checkpoints must be made often enough for the rest to go.
        least = max(options.retain_bytes // 4, options.segment_size)
        self._checkpoint_bytes = min(
            options.checkpoint_bytes, least if options.retain_bytes else options.checkpoint_bytes
        )
        self.broken: str | None = None
        self.full: str | None = None  # why nothing more is taken for now
        self._spared = False  # though there is what `min_free` spared: checkpoints can still be made
        self._logs = Logs(disk, number)
        self._waits_for_room = False  # the journal was refused, and is not tried again before the disk is looked at
        self._refused = bytearray()  # words of progress that a full disk did not take yet
        self._jobs: dict[int, tuple[Callable[[Done], None], tuple[int, ...]]] = {}  # what follows, files in use
        self._tags = itertools.count(1)
        self._syncing = False
        self._after_mark = -1
        self._checkpointing = False
        self._finish: Callable[[], None] | None = None  # what is left to do for a checkpoint,
        self._finish_at = 0  # when the journal is on disk up to here
        self._noting = False  # segments without messages, which are to be removed
        self._checkpointed_at = position  # where the newest began
        self._tried_at = position, 0  # the journal's position and the log's size, at the last attempt to make one
        self.syncs = 0
        self.sync_times = Histogram()  # from when one is asked for to when its replies may go

    @property
    def unwritten(self) -> bool:
        """Is there something that the files should have and do not? Only a full disk allows that."""
        return self._core.persistence.unwritten or bool(self._refused)

    @property
    def visible(self) -> int:
        """The position up to which the journal is shown: what a client has seen does not go with the power."""
        return self._core.persistence.synced if self._waits_for_sync else self._core.log.written

    @property
    def _waits_for_sync(self) -> bool:
        return self.options.fsync == "always"

    @property
    def disk(self) -> Disk:
        """For small files of others, beside those of the journal."""
        return self._disk

    def space(self) -> tuple[int, int]:
        """Bytes available, and bytes in all, of the disk."""
        return self._disk.space()

    # ── what the core asks for ──

    def write(self, pieces: Sequence[Piece]) -> bool:
        if self.broken or self._waits_for_room:
            return False
        try:
            self.segments.write(pieces)
            room = self.segments.has_room() and self._logs.current.has_room()
        except OSError as error:
            if error.errno not in FULL:
                self.fail(f"the journal cannot be written: {error}")
            else:
                self._waits_for_room = True
                self._refuse()
            return False
        if not room:
            self._refuse(spared=self._has_spare())
        return True

    def write_progress(self, words: bytes) -> bool:
        """What the disk refuses waits, and what comes later waits behind it, until the disk is looked at again: there
        may be much of it by then, and to try all of it in each turn would take longer with each."""
        if self.broken:
            return False
        if not self._refused and (not words or self._write_words(words)):
            return True
        self._refused += words
        self._core.account.charge(len(words))
        return False

    def _write_what_was_refused(self) -> None:
        """Once more: progress, then what was taken since."""
        self._waits_for_room = False
        if self._refused and not self.broken and self._write_words(self._refused):
            self._core.account.charge(-len(self._refused))
            self._refused.clear()
            self._look_later()  # nobody may come who has it synced
        self._core.persistence.write_out()

    def _write_words(self, words: bytes | bytearray) -> bool:
        try:
            if not self._logs.current.has_room():
                self._refuse(spared=self._has_spare())  # what is left is for acks
            self._logs.write(words, self._core.log.written, self._core.persistence.synced)
        except OSError as error:
            if error.errno not in FULL:
                self.fail(f"progress cannot be written: {error}")
            else:
                self._refuse()
            return False
        return True

    def wrote(self) -> None:
        if self.broken:
            return
        if self._core.confirmations.waits_for_disk:
            if self._waits_for_sync:
                self._sync()
            else:
                self._core.confirmations.release_replies(self._core.confirmations.written)
        self._look_later()

    def spill(self, items: bytes, kind: str) -> int:
        try:
            return self.index.spill(items, kind)
        except OSError as error:
            self.fail(f"the index cannot be written: {error}")
            return 0

    def bring_back(self, place: int, count: int) -> bytes | None:
        try:
            return self.index.bring_back(place, count)
        except (OSError, JournalError) as error:
            self.fail(str(error))
            return None

    def load(self, start: int, size: int) -> None:
        holding = self.segments.holding(start)
        if holding is None:  # the answer comes later as always, not while queues are being served
            self._timers.set(("missing", start), 0.0, lambda: self._loaded(start, size, b""))
            return

        self.read(holding, size, start - holding, lambda data: self._loaded(start, size, data))

    def read(self, start: int, size: int, offset: int, done: Callable[[bytes], None]) -> None:
        """A part of a segment, in the background."""

        def ended(result: Done) -> None:
            if result.error is not None:
                self.fail(f"the journal cannot be read: {result.error}")
            else:
                done(result.data)

        file = self.segments.file(start)
        self._disk.start_read(file, size, offset, self._job(ended, (file,)))

    def read_now(self, start: int, size: int) -> bytes | None:
        """A part of the log, for who cannot wait; None: it cannot be read, and the broker has to stop."""
        holding = self.segments.holding(start)
        try:
            data = b"" if holding is None else self.segments.read(holding, size, start - holding)
        except OSError as error:
            self.fail(f"the journal cannot be read: {error}")
            return None
        return self._valid(start, size, data)

    def _loaded(self, start: int, size: int, data: bytes) -> None:
        if (valid := self._valid(start, size, data)) is not None:
            self._core.delivery.loaded(start, valid)

    def _valid(self, start: int, size: int, data: bytes) -> bytes | None:
        """A part of the log as it was read, with zeros for what was given up; None: the broker has to stop."""
        bad = first_bad(data, start) if len(data) == size else -1
        if bad == size:
            return data
        if (mended := self.segments.mend(start, size)) is not None:
            return mended
        if (holding := self.segments.holding(start)) is None:
            self.fail(
                f"the journal has no file with position {start}, where a queue has a message: put the missing file "
                "back, or start with --salvage"
            )
        else:
            reason = "a message that a queue holds cannot be read"
            self.fail(str(Damaged(segment_name(holding), start + max(bad, 0) - holding, reason)))
        return None

    # ── group commit ──

    def poll(self) -> None:
        """Take up what has ended in the background."""
        for result in self._disk.finished():
            done, _ = self._jobs.pop(result.tag)
            try:
                done(result)
            except Exception as error:  # the others must be heard, whatever this one led to
                log.exception("what the disk has done could not be taken up")
                self.fail(f"the journal cannot be kept in order: {error!r}")
        self._close_unused()

    def _close_unused(self) -> None:
        """Files that are needed no more, or only rarely: but none that is in use in the background."""
        if self._logs.needless or self.segments.too_many_open:
            in_use = {file for _, files in self._jobs.values() for file in files}
            self.segments.close_unused(in_use)
            self._logs.close_unused(in_use)

    def _start_sync(self, files: tuple[int, ...], done: Callable[[Done], None], *, urgent: bool) -> None:
        self._disk.start_sync(files, self._job(done, files), urgent=urgent)

    def _job(self, done: Callable[[Done], None], files: tuple[int, ...]) -> int:
        tag = next(self._tags)
        self._jobs[tag] = done, files
        return tag

    def _sync(self) -> None:
        """Begin a sync of all that was written, unless one is on its way: then the next begins when it ends."""
        if self._syncing or self.broken:
            return
        writes, position = self._core.confirmations.written, self._core.log.written
        files = self.segments.to_sync()
        logs: dict[Log, int] = {}
        if self._core.confirmations.settled_waits or not self._core.confirmations.waits_for_disk:
            self._core.confirmations.settled_is_taken()
            progress_files, logs = self._logs.to_sync()
            files += progress_files

        def done(result: Done) -> None:
            self._syncing = False
            if result.error is not None:
                self.fail(f"a sync has failed, and what the disk has of the last messages is not known: {result.error}")
            elif not self.broken:
                self.sync_times.add(self._timers.clock() - begun, self.retention.wall())
                for one, size in logs.items():
                    one.synced = size
                self._synced(writes, position)

        if not files:
            self._synced(writes, position)
            return
        self._syncing = True
        self.syncs += 1
        begun = self._timers.clock()
        self._start_sync(files, done, urgent=True)

    def _synced(self, writes: int, position: int) -> None:
        self._core.persistence.synced = position
        self._core.confirmations.release_replies(writes)
        self._owner.grew()
        if files := self.segments.passed(self._core, position):
            # Consumers keep up: what was written is not read again, and its pages serve better for what comes next.
            self._disk.start_uncache(files, self._job(lambda _: None, files))
        if self._core.confirmations.waits_for_disk:
            if self._core.confirmations.written > writes:
                self._sync()
        elif self._core.log.written != position:
            self._look_later()
        elif self._after_mark != position and self._waits_for_sync:
            self._timers.set("mark", LAZY, self._mark)
        self._finish_checkpoint()

    def _look_later(self) -> None:
        """For what nobody waits for, soon is soon enough."""
        if not self._timers.is_set("look"):
            self._timers.set("look", self.options.interval if self.options.fsync == "interval" else LAZY, self._look)

    def _look(self) -> None:
        """Sync what was written since the last time, show it, and see if it is time for a checkpoint."""
        self._core.persistence.heeded = False
        position = self._core.log.written
        unsynced = self._logs.unsynced or position not in (self._core.persistence.synced, self._after_mark)
        self._look_at_space()
        if unsynced and self.options.fsync != "never":
            self._sync()
        if not self._waits_for_sync:
            self._owner.grew()
        tried, tried_log = self._tried_at
        grown = self._logs.current.size - tried_log
        if position - tried >= self._checkpoint_bytes or grown >= self.options.checkpoint_bytes // 4:
            self.checkpoint()

    def _mark(self) -> None:
        """Readers from outside see what a header says is synced: if nothing more comes, an empty batch says it."""
        if self._core.persistence.unwritten or self._core.log.written != self._core.persistence.synced or self.broken:
            return
        if self.full and not self._spared:  # one that found no room would keep all else waiting
            self._timers.set("mark", RETRY, self._mark)
            return
        self._core.persistence.mark()
        self._after_mark = self._core.log.end
        self._core.persistence.write_out()

    # ── when something is wrong ──

    def fail(self, reason: str) -> None:
        if self.broken is None:
            self.broken = reason
            self._core.log.refusing = True
            log.error(Entry("{reason}", reason=reason))
            self._owner.drop_held()

    def _is_short(self) -> bool:
        return self._disk.space()[0] < self.options.min_free

    def _has_spare(self) -> bool:
        """Less may be left than is reserved at a time, and yet enough for checkpoints: without them nothing goes. Of
        what `min_free` spares, half is for them: logs reserve their part of it too."""
        return 0 < self.options.min_free // 2 <= self._disk.space()[0]

    def _look_at_space(self) -> None:
        """Others may fill the disk too."""
        if self.full is None and not self.broken and self._is_short():
            self._refuse(spared=True)

    def _refuse(self, *, spared: bool = False) -> None:
        """The disk is full, or nearly: take no more until there is room again."""
        self._spared = spared
        if self.full is None:
            available, _ = self._disk.space()
            oldest = self._owner.oldest_queue()
            consume = f"consume or delete queue {oldest}, which has the oldest message" if oldest else "delete queues"
            least = f", less than --min-free-disk, {self.options.min_free}" if available < self.options.min_free else ""
            self.full = f"the disk is full ({available} bytes left{least}): {consume}, or free some space"
            self._core.log.refusing = True
            log.error(Entry("{reason}; publishes and new subscriptions are refused until then", reason=self.full))
        if not self._timers.is_set("full"):  # each ack that finds no room comes here, and must not put it off
            self._timers.set("full", RETRY, self._look_for_room)

    def _look_for_room(self) -> None:
        try:
            self.retain()
            self._write_what_was_refused()
            room = self.segments.has_room() and self._logs.current.has_room() and not self.unwritten
            self._spared = room or (self._has_spare() and not self.unwritten)
            room = room and not self._is_short()
        except OSError as error:
            self.fail(f"the journal cannot be written: {error}")
            return
        if self.broken:
            return
        if room:
            log.warning("there is room on the disk again: messages are taken")
            self.full = None
            self._core.log.refusing = False
            self._core.persistence.write_out()
        else:
            self._timers.set("full", RETRY, self._look_for_room)

    # ── checkpoints and retention ──

    def checkpoint(self) -> None:
        """Write down the state of all queues, so that a start needs only what comes after."""
        self._core.persistence.write_out()  # queues must not know of messages that the journal lacks
        if self._checkpointing or self.broken or self.unwritten or (self.full and not self._spared):
            return
        try:
            made, pieces, files, unused = self._begin_checkpoint()
        except OSError as error:
            self._abandon_checkpoint(error)
            return
        finally:
            self._tried_at = self._core.log.written, self._logs.current.size
        self._checkpointing = True
        unheld = self.retention.unheld_below(self._core, made.position)

        def renamed(result: Done) -> None:
            self._checkpointing = False
            if result.error is not None:
                self.fail(f"a checkpoint cannot be written: {result.error}")
                return
            self.retention.needed_from, self.retention.unheld = made.position, unheld
            self._logs.forget_before(made.number)
            self.index.remove(unused)
            remove_before(self._disk, made.number)
            self.retain()

        def synced(result: Done) -> None:
            for one in files:
                self._disk.close(one)
            if result.error is not None:
                self.fail(f"a checkpoint cannot be written: {result.error}")
                return
            self._finish_at = made.position
            self._finish = rename
            self._finish_checkpoint()

        def rename() -> None:
            made.publish(self._disk)
            self._start_sync((self._logs.folder,), renamed, urgent=False)

        def written() -> None:
            self._start_sync((*self.index.to_sync(), *files, self._logs.folder), synced, urgent=False)

        self._core.account.charge(made.memory)
        self._owner.slices.start(self._write_checkpoint(made, pieces, files, written))

    def _write_checkpoint(
        self, made: Checkpoint, pieces: Iterator[int], files: tuple[int, int], written: Callable[[], None]
    ) -> Iterator[int]:
        """In slices, since there may be very many queues. What it says is of the moment when it began, and charged as
        memory until it is written."""
        file, log_file = files
        charged = made.memory
        try:
            for size in pieces:
                yield WRITING + size // WRITTEN
        except Exception as error:
            self._disk.close(log_file)
            made.discard(self._disk, file)
            self._abandon_checkpoint(error)
        else:
            self._checkpointed_at = made.position
            written()
        finally:
            made.release()
            self._core.account.charge(-charged)

    def _abandon_checkpoint(self, error: Exception) -> None:
        """The logs since the one before go on to be needed."""
        self._checkpointing = False
        if not isinstance(error, OSError) or error.errno not in FULL:
            self.fail(f"a checkpoint cannot be written: {error}")

    def _finish_checkpoint(self) -> None:
        """It counts when the journal is on disk as far as it goes. Only commits sync the journal: of two syncs at once
        of one file, an error may be told to one only."""
        if self._finish is None:
            return
        if self._core.persistence.synced < self._finish_at:
            self._sync()
        else:
            finish, self._finish = self._finish, None
            finish()

    def _begin_checkpoint(self) -> tuple[Checkpoint, Iterator[int], tuple[int, int], list[int]]:
        """The state of this moment, and a file for it that is no checkpoint yet; a new log begins at this moment.
        Answers the pieces that are still to be written, and the files of both, to be synced with the folder and closed.
        If there is no room for both, neither is left behind, and the log goes on."""
        made = self._owner.checkpoint(self._logs.current.number + 1)
        unused = self.index.unused()
        file = made.create(self._disk)
        pieces = made.write(self._disk, file)
        try:
            self._disk.reserve(file, 0, made.least_size)
            next(pieces)
            log_file = self._logs.begin(made.number)
        except OSError:
            made.discard(self._disk, file)
            raise
        return made, pieces, (file, log_file), unused

    def retain_from_time_to_time(self) -> None:
        """What is old goes also where little happens."""
        self._look_at_space()
        acked = self._logs.current.has_words  # that alone lets segments go too
        if acked or self._core.log.written != self._checkpointed_at:
            self.checkpoint()
        self.retain()
        self._timers.set("retain", LOOK_AT_AGE, self.retain_from_time_to_time)

    def retain(self) -> None:
        """Remove segments that are old or too many, unless a queue, a hold or the next start needs them."""
        if self.broken:
            return
        try:
            removable = self.retention.removable()
            stays = self.segments.before_gaps(removable)
            removable = [start for start in removable if start not in stays]
            unnoted = self.segments.unnoted(removable)
            self._note_empty(unnoted)
            removed = [start for start in removable if start not in unnoted]
            if len(removed) > MOST_REMOVED:
                self._timers.set("retain more", 0.0, self.retain)
                del removed[MOST_REMOVED:]
            self.segments.pass_over(removed)
            for start in removed:
                said = "segment {segment} is removed: it is older or more than is to be retained"
                log.info(Entry(said, segment=segment_name(start)))
                self.segments.remove(start)
        except OSError as error:
            self.fail(f"old segments cannot be removed: {error}")

    def _note_empty(self, starts: list[int]) -> None:
        """Segments without messages leave gaps in which nothing is missing: that is on disk before they are removed."""
        if not starts or self._noting:
            return
        noted = [self.segments.with_gap(start) for start in starts]
        try:
            file = self.segments.write_empty(noted)
        except OSError as error:
            if error.errno not in FULL:
                raise
            return  # they wait until there is room
        folder = self._disk.open_folder("")
        self._noting = True

        def synced(result: Done) -> None:
            self._noting = False
            self._disk.close(file)
            self._disk.close(folder)
            if result.error is not None:
                self.fail(f"old segments cannot be removed: {result.error}")
                return
            self.segments.note_empty(noted)
            self.retain()

        self._start_sync((file, folder), synced, urgent=False)

    def close(self) -> None:
        """The broker stops in order: all is written, and the next start needs nothing but a checkpoint."""
        self._write_what_was_refused()
        if self.full and self.unwritten and not self.broken:
            said = (
                "stopped with a full disk: {bytes} bytes of messages and definitions are lost, none of them confirmed "
                "or delivered; acks that were not confirmed may be lost too, and their messages come again"
            )
            log.error(Entry(said, bytes=self._core.log.end - self._core.log.written))
        if self.broken or self.unwritten or (self.full and not self._spared):
            return
        while self._jobs and not self.broken:  # a checkpoint may be on its way
            if self._disk.fileno() >= 0:
                select.select([self._disk.fileno()], [], [])
            self.poll()
        if self.broken:
            return
        self._checkpointing = True  # the last one is made here
        try:
            for one in self.segments.unsynced():
                self._disk.sync(one)
            self._core.persistence.synced = self._core.log.written
            self._core.persistence.mark()  # the last word: readers see the whole journal
            self._core.persistence.write_out()
            if self.unwritten:  # a checkpoint would name what the files do not have
                return
            made, pieces, files, unused = self._begin_checkpoint()
            for _ in pieces:
                pass
            self.segments.finish()
            for one in (*self.segments.unsynced(), *self.index.to_sync(), *files, self._logs.folder):
                self._disk.sync(one)
            made.publish(self._disk)
            self._disk.sync(self._logs.folder)
            self.index.remove(unused)
            remove_before(self._disk, made.number)
        except OSError as error:
            self.fail(f"the journal could not be closed in order: {error}; nothing that was confirmed is lost")
