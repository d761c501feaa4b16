"""`history`: the log read again, for whoever asks, beside the queues and without a trace in them.

A stream reads a piece of the journal in the background, answers it, and goes on when its client has taken the replies.
Only what is safely on disk is shown (with --fsync=always), in whole batches whose checksums are right. Without a
journal a stream shows what is still in memory.

Pieces count as memory, and all of them together may have so much of it. When another stream needs some, those whose
clients do not read lose theirs, and read them again when their clients have room. A stream that finds none waits.
A stream itself counts too, with what it keeps to know what is wanted.

Who asks for what hardly occurs has much looked at for few replies. So streams take turns, a slice at a time, and a turn
of the broker has room for so much of it, whatever the number of streams: the rest is looked at in the turns after it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from mqks.broker.capacity import Capacity
from mqks.broker.connections.client import Client
from mqks.broker.connections.mistakes import SHOWN_OF_A_LINE, Mistakes
from mqks.broker.errors import BadRequest, Fault
from mqks.broker.limits import Limits
from mqks.broker.persistence.persistence import Persistence
from mqks.broker.protocol.bridge import name_in
from mqks.broker.timers import Timers
from mqks.core.history import answers
from mqks.core.hub import Core
from mqks.core.keeping import first_bad
from mqks.core.parts import Connection
from mqks.journal.format import FIRST_LINE_ROOM, HEADER_SIZE, dtid_floor, parse_header, parse_segment_line
from mqks.journal.journal import Journal

PIECE = 256 * 1024
SLICE = 8 * 1024  # bytes of a piece that are looked at before another stream has its turn,
TRIES = 200_000  # and at most so many times the words and stars of masks that may be tried on each message
MOST_LOOKED = 1024 * 1024  # bytes that are looked at in one turn of the broker, for all streams
LONGEST_LOOK = 0.004  # seconds after which it is enough too
PAUSE = 0.001  # seconds until the next turn at the latest
NO_END = (1 << 63) - 1
MOST_STREAMS = 16  # on one connection
MOST_HELD = 32 << 20  # bytes of pieces, of all streams,
SHARE = 8  # and not more than this part of all memory
STREAM_COST = 1000  # bytes of memory, beside what it wants; measured, and rounded up
LOOK_AGAIN = 0.05  # seconds, for those who follow a log in memory


@dataclass(eq=False)
class Stream:
    client: Client
    request_id: bytes
    start: int  # messages below this are not shown
    stop: int = NO_END
    until: bytes = b""  # the dtid at which it ends
    limit: int = NO_END
    wants: Callable[[bytes], bool] | None = None  # is this event wanted? None: all are
    tries: int = 0  # words and stars of masks, of which that may try each
    kept: int = 0  # bytes of memory that it takes as long as it goes on, first of all to know what is wanted
    follow: bool = False
    raw: bool = False
    given_up: bool = False  # does it pass over what a salvage gave up?
    shown: int = 0  # up to where it has been answered
    position: int = 0  # of what is to be read next
    size: int = PIECE  # of that
    busy: bool = False  # it is being read
    piece: tuple[int, bytes] | None = None  # what has been read, whole batches: its position, and its text
    text: tuple[int, bytes, int] | None = None  # the piece that is being answered, and how much of it was
    fault: BadRequest | None = None  # why nothing can be read after that


class Histories:
    """All streams of a broker."""

    def __init__(
        self,
        core: Core,
        timers: Timers,
        limits: Limits,
        capacity: Capacity,
        mistakes: Mistakes,
        persistence: Persistence,
    ) -> None:
        self._core = core
        self._timers = timers
        self._limits = limits
        self._capacity = capacity
        self._mistakes = mistakes
        self._persistence = persistence
        persistence.when_it_grows(self.grew)
        self._streams: dict[Client, list[Stream]] = {}
        self._followers: dict[Stream, None] = {}
        self._left = 0  # bytes that may be looked at in this turn
        self._waiting: dict[Stream, None] = {}  # for their turn to look at what was read, in this order
        self._hungry: dict[Stream, None] = {}  # wait for memory to read their next piece, in this order
        self._idle: dict[Stream, None] = {}  # have pieces, and clients without room: for longest the first
        self.held = 0  # bytes of pieces that were read, or are being read
        self.most_held = min(MOST_HELD, core.account.max_memory // SHARE)

    # ── where it begins and ends ──

    @property
    def earliest(self) -> int:
        journal = self._persistence.journal
        return journal.segments.earliest if journal else 0

    @property
    def visible(self) -> int:
        """Up to where the log is shown."""
        return self._persistence.journal.visible if self._persistence.journal else self._core.log.end

    def place(self, where: bytes) -> int:
        """The position that a word of a request names."""
        with self._reading():
            return self._place(where)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """A disk that cannot be read ends the broker, as everywhere."""
        try:
            yield
        except OSError as error:
            if self._persistence.journal is not None:
                self._persistence.journal.fail(f"the journal cannot be read: {error}")
            raise Fault("the journal cannot be read", str(error)) from None

    def _place(self, where: bytes) -> int:
        if where == b"earliest":
            return self.earliest
        if where == b"latest":
            return self.visible
        if where.isdigit():
            position = position_in(where)
            if position < self.earliest:
                raise BadRequest("this position is gone", f"the journal begins at {self.earliest}")
            if position > self.visible:
                raise BadRequest("this position is yet to come", f"the journal ends at {self.visible}")
            self._check_gap(position, given_up=False)
            return position
        return self._place_of(dtid_at(where))

    def _check_gap(self, position: int, *, given_up: bool) -> None:
        """Between files something may have been removed or (given_up: never mind) given up by a salvage, or there never
        was a message."""
        journal = self._persistence.journal
        if journal is None or position == self.visible or journal.segments.holding(position) is not None:
            return
        following = journal.segments.after(position)
        if following is not None and not journal.segments.misses_nothing(position, following, given_up=given_up):
            raise BadRequest("this position is gone", f"the journal goes on at {following}")

    def _place_of(self, dtid: bytes) -> int:
        """The first batch of that time or later."""
        segments = self._journal("a time").segments

        def begun(start: int) -> bytes:
            line = segments.view(start).first_line()
            return line.dtid if line else b""

        at = bisect_left(segments.starts, dtid, key=begun) - 1  # the last segment that begins before that time
        if at < 0:
            return self.earliest
        start = segments.starts[at]
        place = start + segments.view(start).find_dtid(dtid, segments.sizes[start])
        if place == segments.end_of(start):  # it begins with what there is: a gap before that is not asked for
            place = segments.after(start) or place
        return min(place, self.visible)

    def _journal(self, what: str) -> Journal:
        if self._persistence.journal is None:
            raise BadRequest(f"{what} needs a journal: the broker runs with --memory")
        return self._persistence.journal

    # ── streams ──

    def begin(self, stream: Stream) -> None:
        streams = self._streams.setdefault(stream.client, [])
        if len(streams) >= MOST_STREAMS:
            raise self._limits.reached("histories", str(MOST_STREAMS))
        if any(one.request_id == stream.request_id for one in streams):
            raise BadRequest("this request id has a history that has not ended")
        if stream.raw:
            self._journal("--raw")
        stream.kept += STREAM_COST + len(stream.request_id)
        self._capacity.check_reader(stream.client, stream.kept)
        in_memory = self._persistence.journal is None
        with self._reading():
            stream.position = self._core.log.line_near(stream.start) if in_memory else self._batch_with(stream.start)
        streams.append(stream)
        self._capacity.readers.charge(stream.kept)
        self._core.output.expect(stream.client, 1)
        self._go_on(stream)

    def _batch_with(self, position: int) -> int:
        """Where the batch begins that has this position."""
        segments = self._journal("history").segments
        start = segments.holding(position)
        if start is None:
            return position
        header = segments.view(start).header_before(position - start)
        return header.position if header else start

    def end_all(self) -> None:
        """The broker stops: who follows is told where to go on."""
        for streams in list(self._streams.values()):
            for stream in list(streams):
                self._end(stream)

    def leave(self, client: Client, request_id: bytes) -> bool:
        """The client has seen enough; answers whether it has a history of this id."""
        streams = [stream for stream in self._streams.get(client, ()) if stream.request_id == request_id]
        for stream in streams:
            self._end(stream)
        return bool(streams)

    def forget(self, client: Client) -> None:
        for stream in self._streams.pop(client, ()):
            self._let_go(stream)

    def input_ended(self, client: Client) -> None:
        """The client may be gone: what it reads ends with what there is now."""
        for stream in list(self._streams.get(client, ())):
            stream.follow = False
            stream.stop = min(stream.stop, self.visible)
            if stream in self._followers:
                del self._followers[stream]
                self._go_on(stream)

    def is_reading(self, client: Client) -> bool:
        return bool(self._streams.get(client))

    def pump(self, roomy: list[Connection]) -> None:
        """A turn of the broker: these clients have taken what they were sent."""
        for client in roomy:
            assert isinstance(client, Client)
            for stream in list(self._streams.get(client, ())):
                self._go_on(stream)
        if self._waiting or self._hungry:
            self._look_at_some()

    def grew(self) -> None:
        """There is more to see."""
        if self._followers:
            followers, self._followers = self._followers, {}
            for stream in followers:
                self._go_on(stream)

    def _go_on(self, stream: Stream) -> None:
        self._guard(stream, self._step)

    def _guard(self, stream: Stream, step: Callable[[Stream], None]) -> None:
        try:
            if not stream.client.gone and self._is_open(stream):
                step(stream)
        except BadRequest as gone:
            self._fail(stream, gone)
        except Exception as error:  # one history must not end all
            self._fail(stream, Fault.unforeseen(error))

    def _step(self, stream: Stream) -> None:
        """If there is something to look at, wait for a turn to do so; if not, read it, or end."""
        self._idle.pop(stream, None)
        while stream.text is None:
            if stream.piece is not None:
                position, data = stream.piece
                stream.text, stream.piece = (position, data, max(stream.shown - position, 0)), None
            elif stream.busy:
                return
            elif stream.fault is not None:
                raise stream.fault
            elif stream.position < min(self.visible, stream.stop):
                if not self._has_room(stream.client):
                    return
                if self._hungry or not self._make_room():
                    self._hungry[stream] = None
                    self._have_a_turn()
                    return
                self._read_on(stream)
            elif stream.follow and stream.position < stream.stop:
                self._followers[stream] = None
                if self._persistence.journal is None:
                    self._timers.set("follow", LOOK_AGAIN, self.grew)
                return
            else:
                self._end(stream)
                return
        if self._may_read_ahead(stream):
            self._read_on(stream)
        self._waiting[stream] = None
        self._have_a_turn()

    def _have_a_turn(self) -> None:
        if not self._timers.is_set("history"):
            self._come_back(0.0)

    def _come_back(self, pause: float = PAUSE) -> None:
        """Have a turn soon, though nobody may send anything: it is turns that look at something."""
        if self._waiting or self._hungry:
            self._timers.set("history", pause, self._come_back)
        else:
            self._timers.cancel("history")

    def _look_at_some(self) -> None:
        clock = self._timers.clock
        enough = clock() + LONGEST_LOOK
        self._left = MOST_LOOKED
        while self._waiting:
            stream = next(iter(self._waiting))
            del self._waiting[stream]
            self._guard(stream, self._look)
            if self._left <= 0 or clock() >= enough:
                break
        while self._hungry and self._make_room():
            stream = next(iter(self._hungry))
            del self._hungry[stream]
            self._guard(stream, self._read_and_step)
        self._come_back()

    def _look(self, stream: Stream) -> None:
        """Answer some of what has been read, if the client has room."""
        if not self._has_room(stream.client):
            if not stream.busy:
                self._idle[stream] = None
            return
        assert stream.text is not None  # so it waits
        position, data, start = stream.text
        size = min(SLICE, TRIES // max(stream.tries, 1))  # since nobody looks at the clock meanwhile
        end = len(data) if stream.raw else data.find(b"\n", start + size) + 1 or len(data)
        self._left -= end - start
        if self._answer(stream, position + start, data[start:end]):
            self._end(stream)
            return
        done = stream.shown - position  # less than all where replies are very many bytes
        if done < len(data):
            stream.text = position, data, done
        else:
            stream.text = None
            self._count(-len(data))
        self._step(stream)

    def _has_room(self, client: Client) -> bool:
        """If it has none, its streams go on when it has."""
        core, pending = self._core, client.pending_size
        client.reads_history = pending >= core.output.high_water or (
            pending > 0 and core.account.used >= core.account.ceiling
        )
        return not client.reads_history

    def _may_read_ahead(self, stream: Stream) -> bool:
        """Have the next piece read while this one is looked at; not where memory has it anyway."""
        spare = self._persistence.journal is not None and stream.piece is None and self.held < self.most_held
        return spare and self._has_room(stream.client)

    # ── memory ──

    def _count(self, size: int) -> None:
        """So much more is held, or, below zero, less."""
        self.held += size
        self._core.account.charge(size)

    def _release(self, stream: Stream) -> None:
        """Give back what it has. What is being read for it is given back when it comes."""
        self._count(-sum(len(part[1]) for part in (stream.text, stream.piece) if part is not None))
        stream.text = stream.piece = None
        self._idle.pop(stream, None)

    def _let_go(self, stream: Stream) -> None:
        """It has ended: nothing of it stays."""
        for waiting in (self._followers, self._waiting, self._hungry):
            waiting.pop(stream, None)
        self._release(stream)
        self._capacity.readers.charge(-stream.kept)

    def _make_room(self) -> bool:
        """Is there memory for another piece? Those who do not read give theirs back for it, and read again later."""
        while self.held >= self.most_held and self._idle:
            stream = next(iter(self._idle))
            assert stream.text is not None  # so it has something to look at
            stream.position, stream.size, stream.fault = stream.text[0], len(stream.text[1]), None
            self._release(stream)
        return self.held < self.most_held

    # ── reading ──

    def _read_and_step(self, stream: Stream) -> None:
        """There is memory for it now; is there still somebody to read for?"""
        if self._has_room(stream.client):
            self._read_on(stream)
            self._step(stream)

    def _read_on(self, stream: Stream) -> None:
        """Have the next piece, now or when the disk has it. What is wrong is told after what was read before it."""
        if stream.busy or stream.fault or stream.position >= min(self.visible, stream.stop):
            return
        if self._persistence.journal is not None:
            try:
                self._read(stream, self._persistence.journal)
            except BadRequest as gone:
                stream.fault = gone
            return
        held = self._core.log.held_lines(stream.position)
        stream.position = self.visible if held is None else held[0] + len(held[1])
        stream.piece = held
        self._count(0 if held is None else len(held[1]))

    def _read(self, stream: Stream, journal: Journal) -> None:
        start = journal.segments.holding(stream.position)
        if start is None:  # a gap: on with what comes after it, if nothing was removed there meanwhile
            with self._reading():
                self._check_gap(stream.position, given_up=stream.given_up)
            start = journal.segments.after(stream.position)
            if start is None:
                stream.position = self.visible
                return
            stream.position = start
        end = min(self.visible, journal.segments.end_of(start))
        size = min(stream.size, end - stream.position)
        stream.busy = True

        def done(data: bytes) -> None:
            stream.busy = False
            self._count(-size)
            if self._is_open(stream):
                self._got(stream, data, stream.position == start, end)
                self._go_on(stream)

        journal.read(start, size, stream.position - start, done)
        self._count(size)

    def _got(self, stream: Stream, data: bytes, begins_file: bool, end: int) -> None:
        """What was read, which may end in the middle of a batch; `end` is where no batch of this file goes beyond."""
        line = parse_segment_line(data[:FIRST_LINE_ROOM]) if begins_file else None
        skip = line.size if line else 0
        whole = first_bad(data, stream.position)
        header = parse_header(data[skip : skip + HEADER_SIZE])
        if whole > skip:
            stream.size = PIECE
            stream.piece = stream.position + skip, data[skip:whole]
            stream.position += whole
            self._count(whole - skip)
        elif skip and len(data) == skip:
            stream.position += skip
        elif (
            header is not None
            and header.position == stream.position + skip
            and skip + header.size > len(data)
            and header.end <= end
        ):
            stream.size = skip + header.size  # a batch of one long line
        else:
            where = f"at position {stream.position + skip}"
            stream.fault = Fault("the journal is damaged: run mqks journal verify", where)

    def _answer(self, stream: Stream, position: int, data: bytes) -> bool:
        """Say what is wanted of this, and whether it has come to its end."""
        core = self._core
        if stream.raw:
            stream.shown, ended = _whole_batches(data, position, stream)
            if stream.shown > position:
                core.output.say(stream.client, data[: stream.shown - position])
            return ended
        replies, count, stream.shown, ended = answers(
            data,
            position,
            stream.request_id + b" ok ",
            stream.start,
            stream.stop,
            stream.until,
            stream.limit,
            2 * core.output.high_water,
            stream.wants,
            name_in,
        )
        stream.limit -= count
        if replies:
            core.output.say(stream.client, replies)
        return ended or stream.limit == 0

    def _end(self, stream: Stream) -> None:
        end = max(min(stream.shown, stream.stop), stream.start)
        self._close(stream, b"ok --end %d" % end)

    def _close(self, stream: Stream, last: bytes) -> None:
        self._streams[stream.client].remove(stream)
        self._let_go(stream)
        self._core.output.say(stream.client, b"%s %s\n" % (stream.request_id, last))
        self._core.output.expect(stream.client, -1)

    def _is_open(self, stream: Stream) -> bool:
        return stream in self._streams.get(stream.client, ())

    def _fail(self, stream: Stream, bad: BadRequest) -> None:
        """It cannot go on: say so, and end."""
        if self._is_open(stream):
            name = stream.request_id[:SHOWN_OF_A_LINE]
            error_id = self._mistakes.made(stream.client, bad, history=name, position=stream.position)
            self._close(stream, b"error " + error_id)


def _whole_batches(data: bytes, position: int, stream: Stream) -> tuple[int, bool]:
    """Up to where raw batches go out, and whether that is the end."""
    if stream.stop == NO_END and not stream.until:
        return position + len(data), False
    at = 0
    while at < len(data):
        header = parse_header(data[at : at + HEADER_SIZE])
        assert header is not None  # its checksum was right
        if header.position >= stream.stop or (stream.until and header.dtid >= stream.until):
            return position + at, True
        at += header.size
    return position + at, False


def position_in(digits: bytes) -> int:
    """Python would not read any number of digits; what has 20 is beyond all positions, whatever follows."""
    return int(digits.lstrip(b"0")[:20] or b"0")


def dtid_at(word: bytes) -> bytes:
    """The first dtid of a time, as requests have it; without a zone it is UTC."""
    try:
        text = word.decode("ascii")
        if "T" not in text:
            raise ValueError
        return dtid_floor(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise BadRequest("expected a position, a time such as 2026-01-31T12:00:00Z, earliest or latest") from None
