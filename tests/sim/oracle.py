"""What must hold: it hears every request that the broker takes and every byte that the broker says, and objects.

Nothing confirmed is lost, nothing acked returns, order is kept, nothing is invented; what was in flight when the broker
died may or may not have happened. After damage that was said (`weak`), only that nothing is invented.
"""

import re
from dataclasses import replace
from typing import Any, NamedTuple

from tests.sim import bounds, journal
from tests.sim.clients import Request, message_of
from tests.sim.disk import FakeDisk
from tests.sim.histories import Held, Holds, Places, Reader, may_refuse
from tests.sim.links import Consumer, Delivery, Link, Violation
from tests.sim.truth import KILL, POWER, Bounds, Copy, Definition, Message, Op, Queue, Truth, changed

RESTART_GRACE = 60.0
MOST_STREAMS = 16  # histories of a connection
LARGEST = 20_000  # bytes of memory that a request may take or give back on the way: its line, what it reads
DELIVERY = re.compile(rb"(\S+) event=([^ ,]*)(?:,retry=\d+)? (.*)", re.DOTALL)
RETRIED = re.compile(rb'\S+ (event=[^ ]*,retry=\d+ |\{"retry": )')
SEVX_RETRY = re.compile(rb'\{"retry": \d+(, |\})')


class Memory(NamedTuple):
    """Bytes by which it is beyond its limit, before and after a step: the lower and the higher number."""

    least: int = -1
    most: int = -1


class Oracle:
    def __init__(self, disk: FakeDisk | None, fsync: str, bounds: Bounds) -> None:
        self.disk = disk
        self.bounds = bounds  # the broker's own
        self.fsync = fsync
        self.truth = Truth()
        self.now = 0.0
        self.weak = False
        self.turned_ops = 0  # so many ops are in files
        self.power_ops = 0  # so many are on disk, whatever was confirmed
        self._settled: list[Copy] = []  # since the last turn
        self._given: list[Copy] = []  # delivered since the last turn
        self._unrecorded: list[Copy] = []  # delivered in a turn that could not be written
        self.deliveries = 0
        self.visible = 0  # the position up to which the journal is shown
        self.holds = Holds()
        self._found: tuple[tuple[int, ...], Places] | None = None  # where messages stand, in this state of the disk
        self._shown: set[Message] = set()  # by histories, since the last crash

    # ── what clients ask ──

    def fed(
        self,
        link: Link,
        requests: list[Request],
        *,
        died: bool = False,
        failing: bool = False,
        memory: Memory = Memory(),  # noqa: B008  # it never changes
    ) -> None:
        """The broker has taken these requests, in this order, or (died) perhaps some of them. An error means: not
        taken, also from a disk that fails or is full (failing), and with full memory."""
        news = link.news()
        refused = {line.split(b" ", 1)[0] for line, _ in news if line.split(b" ", 2)[1] == b"error"}
        only_publishes = all(request.action in ("publish", "send") for request in requests)  # none frees memory
        for request in requests:
            if request.id in refused:
                if not failing and not self.weak and memory.most < -LARGEST:
                    self._check_refusal(link, request)
                news = [one for one in news if not one[0].startswith(request.id + b" error ")]
                continue
            if request.answered:
                link.waiting.append(request)
            ops = len(self.truth.ops)
            getattr(self, request.action)(link, request)
            if memory.least > LARGEST and len(self.truth.ops) > ops and only_publishes:
                raise Violation(f"taken though memory is full: {request.line[:80]!r}")
        if not died:
            for line, end in news:
                self._said(link, line, end)

    def _check_refusal(self, link: Link, request: Request) -> None:
        if request.action in ("publish", "send"):
            bounds.check_refusal(self.truth, self.bounds, message_of(request))
        elif request.action in ("history", "hold") and self.disk is not None and len(link.readers) < MOST_STREAMS:
            start = request.start
            named = start.isdigit()
            if not named or not (self._has_given_up() or may_refuse(self._places(self.disk), int(start), self.visible)):
                raise Violation(f"refused: {request.line!r}")

    def publish(self, _: Link, request: Request) -> None:
        request.op = self.truth.take(message_of(request))

    send = publish

    def dropped(self, name: bytes, ready: set[bytes], count: int) -> None:
        """A full queue has dropped so many messages; these are left that wait for a consumer."""
        gone = bounds.dropped(self.truth.queues[name], ready, count)
        for copy in gone:
            copy.settle(self.truth.last)
        self._settled += gone

    def consume(self, link: Link, request: Request) -> None:
        old = self.truth.definition(request.queue)
        new = _bounded(changed(old, request.events or None, request.add), request)
        self._join(link, request, self._with_unused(new, request.unused), sevx=False)

    def recv(self, link: Link, request: Request) -> None:
        new = _bounded(replace(self.truth.definition(request.queue), pattern=request.pattern), request)
        self._join(link, request, self._with_unused(new, request.unused), sevx=True)

    def rebind(self, _: Link, request: Request) -> None:
        keeps = not request.events and bool(request.add or request.remove or request.bounds)
        events = None if keeps else request.events
        new = changed(self.truth.definition(request.queue), events, request.add, request.remove)
        request.op = self.truth.define(_bounded(new, request))

    def delete_queue(self, _: Link, request: Request) -> None:
        request.op = self._delete(request.queue)

    def delete_when_unused(self, _: Link, request: Request) -> None:
        queue = self.truth.queues.get(request.queue)
        if queue is None:
            request.op = self._delete(request.queue)
            return
        request.op = self.truth.define(replace(queue.definition, unused=request.unused, sticky=True))
        if not queue.consumers:
            request.op = self._watch_unused(queue) or request.op

    def delete_consumer(self, link: Link, request: Request) -> None:
        consumer = link.consumers.pop(request.consumer, None)
        if consumer is not None:
            if consumer.manual_ack:
                self._return(consumer)
            else:
                link.leaving.append(consumer)
            self._leave(consumer)

    def ack(self, link: Link, request: Request) -> None:
        for copy in self._meant(link, request):
            copy.settle(self.truth.last)
            self._settled.append(copy)
            request.settled.append(copy)

    def reject(self, link: Link, request: Request) -> None:
        for copy in self._meant(link, request):
            copy.holder = None

    def ping(self, link: Link, request: Request) -> None:
        """Answered at once, by overtaking what waits for the disk."""

    # ── history and hold ──

    def history(self, link: Link, request: Request) -> None:
        unknown = request.start == b"latest" and self.fsync != "always"
        start = None if unknown else self._place(request.start)
        reads = request.limit, frozenset(request.events), request.follow, request.start.isdigit()
        link.readers[request.id] = Reader(request.id, start, self.visible, request.stop, *reads)

    def hold(self, _: Link, request: Request) -> None:
        if self.disk is not None:
            request.held = Held(self._place(request.start), self.now + request.seconds)
            self.holds.by_name[request.queue] = request.held

    def _place(self, start: bytes) -> int:
        if start == b"earliest":
            return self._places(self.disk).earliest if self.disk is not None else 0
        return self.visible if start == b"latest" else int(start)

    def _places(self, disk: FakeDisk) -> Places:
        """Found anew only when the disk has changed."""
        state = disk.changed, len(disk.entries), sum(inode.written for inode in disk.entries.values())
        if self._found is None or self._found[0] != state:
            self._found = state, Places.of(disk)
        return self._found[1]

    def _read(self, link: Link, reader: Reader, word: bytes, text: bytes) -> None:
        """A history says something. What it shows is on disk."""
        if self.disk is None or self.weak:
            if word == b"error" or text.startswith(b"--end"):
                del link.readers[reader.id]
            return
        places = self._places(self.disk)
        messages = self.truth.messages
        if word == b"error":
            known = self.disk.is_flipped() or (reader.named and self._has_given_up())
            if not known and not reader.may_fail(places):
                raise Violation(f"history {reader.id!r} fails, and no message is gone that it comes to")
            del link.readers[reader.id]
        elif text.startswith(b"--end "):
            reader.ends(places, messages, int(text[6:]))
            link.told.append(int(text[6:]))
            del link.readers[reader.id]
        else:
            position, _, rest = text.partition(b" ")
            match = DELIVERY.fullmatch(rest)
            message = messages.get(match[1]) if match is not None else None
            if match is None or message is None or (match[2], match[3]) != message.mqks:
                raise Violation(f"history {reader.id!r} has invented: {text[:200]!r}")
            reader.shows(places, messages, int(position), message.id)
            link.told.append(int(position))
            self._check_shown(message)

    def _has_given_up(self) -> bool:
        return any(op.lost for op in self.truth.ops)

    def _check_shown(self, message: Message) -> None:
        if message in self._shown:
            return
        self._shown.add(message)
        if self.fsync == "always":
            self._check_durable(message)
            next(op for op in self.truth.ops if op.message is message).confirmed = True
        else:
            self._check_written(message)

    @staticmethod
    def _meant(link: Link, request: Request) -> list[Copy]:
        """The deliveries that an ack or reject speaks of, no longer with their consumer."""
        consumer = link.consumers.get(request.consumer)
        if consumer is None or not consumer.manual_ack:
            return []
        if request.message:
            meant = [one for one in consumer.deliveries if one.copy.message.id == request.message][:1]
        else:
            meant = [one for one in consumer.deliveries if one.end <= link.sent]
        consumer.deliveries = [one for one in consumer.deliveries if one not in meant]
        return [one.copy for one in meant]

    @staticmethod
    def _with_unused(definition: Definition, unused: float | None) -> Definition:
        return definition if definition.sticky else replace(definition, unused=unused)

    def _join(self, link: Link, request: Request, definition: Definition, sevx: bool) -> None:
        request.op = self.truth.define(definition)
        queue = self.truth.queues[request.queue]
        queue.due = None
        consumer = link.consumers.get(request.id)
        if consumer is None:
            consumer = link.consumers[request.id] = Consumer(request.id, link, queue, not request.answered)
            queue.consumers.append(consumer)
        elif consumer.manual_ack and not request.manual_ack:
            left = [one for one in consumer.deliveries if one.end <= link.sent]
            consumer.deliveries = [one for one in consumer.deliveries if one.end > link.sent]
            for one in left:
                one.copy.holder = None
        consumer.sevx = sevx
        consumer.manual_ack = request.manual_ack

    def _delete(self, name: bytes) -> Op | None:
        queue = self.truth.queues.get(name)
        for consumer in queue.consumers if queue else ():
            assert isinstance(consumer, Consumer)
            del consumer.link.consumers[consumer.id]
            self._return(consumer)
        return self.truth.delete(name)

    @staticmethod
    def _return(consumer: Consumer) -> None:
        for one in consumer.deliveries:
            one.copy.holder = None
            one.copy.recorded &= one.end <= consumer.link.sent  # what never left comes without a retry
        consumer.deliveries.clear()

    def _leave(self, consumer: Consumer) -> None:
        consumer.queue.consumers.remove(consumer)
        if not consumer.queue.consumers:
            self._watch_unused(consumer.queue)

    def _watch_unused(self, queue: Queue) -> Op | None:
        unused = queue.definition.unused
        if unused == 0:
            return self._delete(queue.name)
        queue.due = None if unused is None else self.now + unused
        return None

    # ── what else happens ──

    def purging(self, name: bytes) -> tuple[int, int]:
        """All that is ready in a queue will be settled: at least so many messages, and at most so many."""
        ready = self.truth.purge(name)
        certain = sum(not copy.doubtful for copy in ready)
        for copy in ready:
            copy.settle(self.truth.last)
        self._settled += ready
        return certain, len(ready) + self.truth.queues[name].lost

    def disconnected(self, link: Link) -> None:
        for consumer in [*link.consumers.values(), *link.leaving]:
            self._return(consumer)
        for consumer in list(link.consumers.values()):
            self._leave(consumer)
        link.consumers.clear()

    def ticked(self, now: float) -> None:
        self.now = now
        due = [queue for queue in self.truth.queues.values() if queue.due is not None and queue.due <= now]
        for queue in sorted(due, key=lambda queue: queue.due or 0):
            self._delete(queue.name)

    def left(self, link: Link, size: int) -> None:
        """So many bytes more have left: with auto ack, what is in them is settled."""
        link.sent += size
        for consumer in [*link.consumers.values(), *link.leaving]:
            if not consumer.manual_ack:
                gone = [one for one in consumer.deliveries if one.end <= link.sent]
                del consumer.deliveries[: len(gone)]
                for one in gone:
                    one.copy.settle(self.truth.last)
                    self._settled.append(one.copy)

    def turned(self, *, complete: bool) -> None:
        """A turn is over. If it is complete, what was known before it survives the process."""
        if self._given and self._unrecorded and not complete:  # else they may have been written when it began
            raise Violation("messages are delivered while the deliveries of an earlier turn are not written")
        self._unrecorded += self._given
        self._given.clear()
        if complete:
            self.turned_ops = len(self.truth.ops)
            for copy in self._settled:
                copy.safety = max(copy.safety, KILL)
            self._settled.clear()
            self.recorded()
        if self.disk is not None:
            journal.check_synced(self.disk)
        if not self.weak:
            for queue in self.truth.queues.values():
                if queue.fresh:
                    self._check_order(queue)

    def recorded(self) -> None:
        """The deliveries of all turns are in files."""
        for copy in self._unrecorded:
            copy.recorded = True
        self._unrecorded.clear()

    def _check_order(self, queue: Queue) -> None:
        """What was seen for the first time are the next ones in the queue, and each consumer got its part in order."""
        order = {copy: index for index, copy in enumerate(queue.copies.values())}
        fresh: list[int] = []
        for copies in queue.fresh.values():
            places = [order[copy] for copy in copies]
            if places != sorted(places):
                raise Violation(f"out of order in {queue.name!r}: {[copy.message.id for copy in copies]}")
            fresh += places
        if sorted(fresh) != list(range(queue.unseen, queue.unseen + len(fresh))):
            missing = [copy.message.id for copy, index in order.items() if queue.unseen <= index <= max(fresh)]
            got = [copy.message.id for copies in queue.fresh.values() for copy in copies]
            raise Violation(f"not first in, first out, in {queue.name!r}: expected {missing}, got {got}")
        queue.unseen += len(fresh)
        queue.fresh.clear()

    # ── what the broker says ──

    def _said(self, link: Link, line: bytes, end: int) -> None:
        id, word, *rest = line.split(b" ", 2)
        if (reader := link.readers.get(id)) is not None:
            self._read(link, reader, word, rest[0] if rest else b"")
            return
        if word == b"error":
            raise Violation(f"an error for {id!r} after it was taken")
        if rest and rest[0].startswith((b"--update ", b'{"update": ')):
            pass
        elif rest in ([], [b""], [b"pong"]):
            self._confirmed(link, id)
        else:
            self._delivered(link, id, rest[0], end)

    def _confirmed(self, link: Link, id: bytes) -> None:
        request = next((request for request in link.waiting if request.id == id), None)
        if request is None:
            raise Violation(f"an answer that nobody waits for: {id!r}")
        if request.action != "ping":
            first = next(request for request in link.waiting if request.action != "ping")
            if first is not request:
                raise Violation(f"{request.line!r} was answered before {first.line!r}")
        link.waiting.remove(request)
        consumer = link.consumers.get(id)
        if consumer is not None:
            consumer.announced = True
        if request.held is not None:
            request.held.confirmed = self.fsync == "always"
        if self.fsync != "always":
            if request.op is not None and request.op.message is not None:
                self._check_written(request.op.message)
            return
        if request.op is not None:
            request.op.confirmed = True
            if request.op.message is not None:
                self._check_durable(request.op.message)
        for copy in request.settled:
            copy.safety = POWER

    def _check_durable(self, message: Message) -> None:
        """It is on disk, or was: of what is taken once a late duplicate may be confirmed, when its segment is gone."""
        if self.disk is not None:
            line = b"\n" + message.line + b"\n"
            there = {name for name, content in self.disk.written("journal").items() if line in content}
            durable = {name for name, content in self.disk.durable("journal", flips=False).items() if line in content}
            if not there or not there <= durable | (there - self.disk.content("journal").keys()):
                raise Violation(f"confirmed before it was on disk: {message.line[:80]!r}")

    def _check_written(self, message: Message) -> None:
        """What a client sees, a killed broker has in its files."""
        if self.disk is not None:
            line = b"\n" + message.line + b"\n"
            if not any(line in content for content in self.disk.written("journal").values()):
                raise Violation(f"delivered or confirmed before it was written: {message.line[:80]!r}")

    def _check_retry(self, copy: Copy, text: bytes) -> None:
        """What was delivered, and comes again after the broker was killed, says so."""
        if copy.repeats and not self.weak and not RETRIED.match(text):
            raise Violation(f"delivered again without a retry: {text[:80]!r}")
        copy.repeats = False

    def _delivered(self, link: Link, id: bytes, text: bytes, end: int) -> None:
        self.deliveries += 1
        consumer = link.consumers.get(id)
        if consumer is None:
            raise Violation(f"a delivery to nobody: {id!r} {text[:80]!r}")
        message = self.truth.messages.get(text.split(b" ", 1)[0])
        if message is None or not self._is_whole(consumer, message, text):
            raise Violation(f"invented: {text[:200]!r}")
        if not consumer.announced:
            raise Violation(f"a message before the consumer's own ok: {id!r} {text[:80]!r}")
        queue = consumer.queue
        copy = queue.copies.get(message.id)
        if self.weak:
            copy = copy or Copy(message)
        elif copy is None:
            raise Violation(f"{message.id!r} is not in {queue.name!r}")
        elif copy.settled:
            raise Violation(f"{message.id!r} was settled in {queue.name!r} (safety {copy.safety}), and returned")
        elif copy.holder is not None:
            raise Violation(f"{message.id!r} was delivered twice from {queue.name!r}")
        self._check_retry(copy, text)
        self._given.append(copy)
        if not copy.seen:
            self._check_written(message)
            copy.seen = True
            queue.fresh.setdefault(consumer, []).append(copy)
        copy.holder = consumer
        copy.doubtful = False
        consumer.deliveries.append(Delivery(copy, end))

    @staticmethod
    def _is_whole(consumer: Consumer, message: Message, text: bytes) -> bool:
        if consumer.sevx:
            return SEVX_RETRY.sub(b"{", text.split(b" ", 1)[1], count=1) == message.sevx
        match = DELIVERY.fullmatch(text)
        return match is not None and (match[2], match[3]) == message.mqks

    # ── crashes and the end ──

    def crashed(self, *, power_loss: bool) -> None:
        if power_loss:
            self.turned_ops = max(self.truth.confirmed(), self.power_ops)
            if self.fsync != "always":
                self.turned_ops = 0
                self.weak = True
        for copy in self.truth.copies.values():
            copy.crash(POWER if power_loss else KILL)
        for copies in (self._settled, self._given, self._unrecorded):
            copies.clear()
        self.holds.crashed()
        self._shown.clear()
        self._found = None

    def restarted(self, figures: dict[str, Any], *, power_loss: bool, failing: bool = False) -> None:
        """The broker runs again, and shows these queues and holds. Its disk may be full already (failing)."""
        shown, holds = figures["queues"], figures["journal"]["holds"]
        assert self.disk is not None
        self.holds.started(self.disk)
        if self.weak:
            self.truth.rebuild(len(self.truth.ops))
            return
        for name, held in self.holds.by_name.items():
            if held.expires > self.now and holds.get(name.decode(), {}).get("position") != held.position:
                raise Violation(f"the hold {name!r} at {held.position} is lost: there are {holds}")
        kept = self._kept_messages()
        journal.check_format(self.disk, may_be_torn=failing)
        deletes = len(journal.lines(self.disk, b"delete_queue"))
        found = {name.encode(): _shown(queue) for name, queue in shown.items()}
        sticky = {line.split(b" ", 3)[2]: b" --sticky" in line for line in journal.lines(self.disk, b"rebind")}
        counts = [
            count
            for count, definitions in self.truth.prefixes(kept, deletes)
            if {name: one.shown(self.bounds) for name, one in definitions.items()} == found
            and all(one.sticky == sticky.get(name) for name, one in definitions.items())
        ]
        if not counts:
            raise Violation(f"after {kept} messages the queues were never like this: {found}")
        count = max(counts)
        if count < self.turned_ops:
            lost = self.truth.ops[count : self.turned_ops]
            raise Violation(
                f"lost in a crash: {[op.message.line[:60] if op.message else op.definition for op in lost]}"
            )
        self.truth.rebuild(count)
        self.turned_ops = count
        self.power_ops = count if power_loss else min(self.power_ops, count)
        for queue in self.truth.queues.values():
            unused = queue.definition.unused
            queue.due = None if unused is None else self.now + max(unused, RESTART_GRACE)

    def _kept_messages(self) -> int:
        """How many messages the journal has: the first ones that were sent, whole and in order."""
        assert self.disk is not None
        kept = journal.lines(self.disk, b"publish", b"send")
        sent = self.truth.lines()
        if kept != sent[: len(kept)]:
            wrong = next((index for index, (a, b) in enumerate(zip(kept, sent, strict=False)) if a != b), len(sent))
            raise Violation(f"the journal has {kept[wrong][:80]!r} in place {wrong}: it has a hole, or it is invented")
        return len(kept)

    def salvaged(self, messages: set[bytes], *, strictly: bool) -> None:
        """A salvage gave these messages up. If nothing else was damaged (strictly), all else must be there."""
        self.weak |= not strictly
        self.truth.give_up(messages)

    def closed(self) -> None:
        """A clean stop: all that was known is safe."""
        self.turned_ops = self.power_ops = len(self.truth.ops)
        if self.fsync == "always":
            for copy in self.truth.copies.values():
                copy.safety = POWER
            for held in self.holds.by_name.values():
                held.confirmed = True
        for copy in self.truth.copies.values():
            copy.recorded = False  # what it had not sent comes without a retry

    def at_rest(self, links: list[Link]) -> None:
        for link in links:
            if link.waiting:
                raise Violation(f"never answered: {link.waiting[0].line!r}")
            for reader in link.readers.values():
                if not reader.follow:
                    raise Violation(f"history {reader.id!r} never ended")

    def drained(self, shown: dict[str, dict[str, Any]]) -> None:
        """Every queue was consumed to its end."""
        if self.weak:
            return
        found = {name.encode(): _shown(queue) for name, queue in shown.items()}
        expected = {name: queue.definition.shown(self.bounds) for name, queue in self.truth.queues.items()}
        if found != expected:
            raise Violation(f"the queues are {found} and should be {expected}")
        for queue in self.truth.queues.values():
            lost = [copy.message.id for copy in queue.copies.values() if not copy.settled and not copy.doubtful]
            if lost:
                raise Violation(f"never delivered from {queue.name!r}: {lost}")
        if self.disk is not None and self._kept_messages() != len(self.truth.lines()):
            raise Violation("the journal lacks messages that were taken")


def _shown(queue: dict[str, Any]) -> tuple[object, ...]:
    pattern = queue["pattern"]
    bounds = Bounds(queue["max_length"], queue["max_bytes"], queue["overflow"])
    return queue["events"], None if pattern is None else tuple(pattern.items()), queue["delete_when_unused"], bounds


def _bounded(definition: Definition, request: Request) -> Definition:
    return replace(definition, bounds=definition.bounds._replace(**request.bounds))
