"""The core: the parts that messages pass through, and what each of them needs.

It does no I/O and knows no policy. Bytes come in by `Parser.feed` and leave by `Connection.pending` and `Delivery.sent`; whoever has the
sockets moves them. Each part is in a file of its own, owns its state, and knows only those that it is made with:
    Account, Work (account.pyx)     memory that is taken, and effort
    Tail (tail.pyx)                 the log in memory, with the batches that the journal lacks
    Events (events.pyx)             which queues an event goes to
    Seen (seen.pyx)                 ids of --once
    Ready (ready.pyx)               what is ready in queues, and which of them may have something to deliver
    Progress (progress.pyx)         what became of messages, for the journal
    LineSizes (sizes.pyx)           bytes of queues whose bytes are limited
    Output (output.pyx)             replies and out-buffers
    Confirmations (confirming.pyx)  replies that wait for the disk
    Acks (settling.pyx)             consumers, and what they have not settled
    QueueLimits (bounding.pyx)      queues within their limits
    Router (routing.pyx)            messages to queues
    Persistence (keeping.pyx)       batches and progress, as they are written
    DeferredInput (deferred.pyx)    connections whose input waits
    Delivery (delivery.pyx)         messages from queues to consumers
    Snapshots (snapshots.pyx)       queues for a checkpoint, and after a start
    Parser (parsing.pyx)            lines in
What they ask of Python is in callbacks.py: `Handler` is all of it.
"""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.account cimport Account, Work
from mqks.core.bounding cimport QueueLimits
from mqks.core.confirming cimport Confirmations
from mqks.core.deferred cimport DeferredInput
from mqks.core.delivery cimport Delivery
from mqks.core.events cimport Events
from mqks.core.keeping cimport Persistence
from mqks.core.output cimport Output
from mqks.core.parsing cimport Parser
from mqks.core.parts cimport Connection
from mqks.core.progress cimport Progress
from mqks.core.ready cimport Ready
from mqks.core.routing cimport Router
from mqks.core.seen cimport Seen
from mqks.core.settling cimport Acks
from mqks.core.sizes cimport LineSizes
from mqks.core.snapshots cimport Snapshots
from mqks.core.tail cimport Tail


@cython.final
cdef class Core:
    def __init__(self, handler, *, size_t max_line, size_t max_memory, size_t high_water, uint64_t seed):
        cdef Account account = Account(max_memory)
        cdef Work work = Work()
        cdef Tail log = Tail(account)
        self.account = account
        self.work = work
        self.log = log
        self.events = Events(seed)
        self.seen = Seen(account)
        self.ready = Ready(account, handler)
        self.progress = Progress(account, log)
        self.sizes = LineSizes(work, log, handler)
        self.output = Output(account, work, handler, max_line=max_line, high_water=high_water)
        self.confirmations = Confirmations(account, log, self.output, self.ready)
        self.acks = Acks(account, work, log, self.ready, self.progress, self.sizes, self.output, seed=seed)
        self.limits = QueueLimits(account, log, self.sizes, self.acks, handler, handler)
        self.router = Router(work, log, self.events, self.seen, self.ready, self.limits, handler)
        self.persistence = Persistence(log, self.ready, self.progress, self.confirmations, handler)
        self.deferred = DeferredInput(self.output, self.acks)
        self.delivery = Delivery(
            account, work, log, self.ready, self.progress, self.output, self.acks, self.persistence, self.deferred,
            handler, handler, seed=seed,
        )
        self.snapshot_maker = Snapshots(account, log, self.events, self.seen, self.ready, self.router, handler)
        self.parser = Parser(
            account, work, log, self.events, self.seen, self.output, self.confirmations, self.acks, self.limits, self.router,
            self.deferred, handler,
        )

    def attach(self, Connection c, int fd=-1):
        self.output.attach(c)
        c.fd = fd

    def detach(self, Connection c):
        """The connection is gone: free what it had."""
        self.acks.detach(c)
        self.parser.detach(c)
        self.output.detach(c)

    # ── forwards ──

    @property
    def used(self):
        return self.account.used

    @property
    def full(self):
        return self.account.full

    @property
    def max_memory(self):
        return self.account.max_memory

    @property
    def ceiling(self):
        return self.account.ceiling

    def charge(self, size):
        return self.account.charge(size)

    @property
    def effort(self):
        return self.work.effort

    def exert(self, effort):
        return self.work.exert(effort)

    @property
    def position(self):
        return self.log.end

    @property
    def held(self):
        return self.log.held

    @property
    def written_position(self):
        return self.log.written

    @property
    def last_crc(self):
        return self.log.previous

    def line_near(self, position):
        return self.log.line_near(position)

    def held_lines(self, position):
        return self.log.held_lines(position)

    def line_at(self, position, *most):
        return self.log.line_at(position, *most)

    def live_in(self, start, end):
        return self.log.live_in(start, end)

    def extents(self):
        return self.log.extents()

    @property
    def refusing(self):
        return self.log.refusing

    @refusing.setter
    def refusing(self, value):
        self.log.refusing = value

    @property
    def high_water(self):
        return self.output.high_water

    @property
    def max_line(self):
        return self.output.max_line

    def say(self, c, line):
        return self.output.say(c, line)

    def tell(self, consumer):
        return self.output.tell(consumer)

    def expect(self, c, answers):
        return self.output.expect(c, answers)

    def confirm(self, *arguments, **options):
        return self.confirmations.confirm(*arguments, **options)

    @property
    def waits_for_disk(self):
        return self.confirmations.waits_for_disk

    @property
    def settled_waits(self):
        return self.confirmations.settled_waits

    @property
    def written(self):
        return self.confirmations.written

    def settled_is_taken(self):
        return self.confirmations.settled_is_taken()

    def drop_held(self):
        return self.confirmations.drop_held()

    def release_replies(self, writes):
        return self.confirmations.release_replies(writes)

    @property
    def published(self):
        return self.router.published

    def publish(self, *arguments):
        return self.router.publish(*arguments)

    def send(self, *arguments):
        return self.router.send(*arguments)

    def record(self, line):
        return self.router.record(line)

    def take_everything(self, q, yes):
        return self.events.take_everything(q, yes)

    def inspect_everything(self, change):
        return self.events.inspect_everything(change)

    def suspend(self, q):
        return self.ready.suspend(q)

    def go_on(self, q):
        return self.ready.go_on(q)

    def join(self, c, id, q, dialect, manual_ack, prefetch):
        return self.acks.join(c, id, q, dialect, manual_ack, prefetch)

    def change(self, c, dialect, manual_ack, prefetch):
        return self.acks.change(c, dialect, manual_ack, prefetch)

    def pause(self, c, yes):
        return self.acks.pause(c, yes)

    def leave(self, c, disconnected):
        return self.acks.leave(c, disconnected)

    def return_some(self, c, most, disconnected):
        return self.acks.return_some(c, most, disconnected)

    def delete_queue(self, q):
        return self.acks.delete_queue(q)

    def ack(self, c, id):
        return self.acks.ack(c, id)

    def reject(self, c, id):
        return self.acks.reject(c, id)

    @property
    def consumers(self):
        return self.acks.consumers

    @property
    def acked(self):
        return self.acks.acked

    @property
    def rejected(self):
        return self.acks.rejected

    @property
    def delivered(self):
        return self.delivery.delivered

    def peek(self, q, limit):
        return self.delivery.peek(q, limit)

    def loaded(self, start, data):
        return self.delivery.loaded(start, data)

    def take_roomy(self):
        return self.delivery.take_roomy()

    @property
    def rooms(self):
        return self.delivery.rooms

    def sent(self, c, size):
        return self.delivery.sent(c, size)

    @property
    def bytes_out(self):
        return self.delivery.bytes_out

    def on_peer_closed(self, c, unreachable):
        return self.delivery.on_peer_closed(c, unreachable)

    @property
    def heeded(self):
        return self.persistence.heeded

    @heeded.setter
    def heeded(self, value):
        self.persistence.heeded = value

    @property
    def synced(self):
        return self.persistence.synced

    @synced.setter
    def synced(self, value):
        self.persistence.synced = value

    @property
    def stalled(self):
        return self.persistence.stalled

    @property
    def unwritten(self):
        return self.persistence.unwritten

    def open_journal(self, *arguments, **options):
        return self.persistence.open_journal(*arguments, **options)

    def mark(self):
        return self.persistence.mark()

    def write_out(self):
        return self.persistence.write_out()

    def adopt(self, extents):
        return self.snapshot_maker.adopt(extents)

    def replay(self, position, batch, time):
        return self.snapshot_maker.replay(position, batch, time)

    def restore(self, q, snapshot, progress, taken):
        return self.snapshot_maker.restore(q, snapshot, progress, taken)

    def restored(self):
        return self.snapshot_maker.restored()

    def oldest(self, q, unacked):
        return self.snapshot_maker.oldest(q, unacked)

    def limit(self, q, max_length, max_bytes, drops_oldest, bytes):
        return self.limits.limit(q, max_length, max_bytes, drops_oldest, bytes)

    def trim(self, q, most):
        return self.limits.trim(q, most)

    def measure(self, q, most_messages, most_read):
        return self.limits.measure(q, most_messages, most_read)

    def purge(self, q, limit):
        return self.limits.purge(q, limit)

    @property
    def dropped(self):
        return self.limits.dropped

    def feed(self, c, data):
        return self.parser.feed(c, data)

    def block(self, c):
        return self.parser.block(c)

    def unblock(self, c):
        return self.parser.unblock(c)

    def rest(self):
        return self.parser.rest()

    def amid_line(self, connections):
        return self.parser.amid_line(connections)

    @property
    def bytes_in(self):
        return self.parser.bytes_in

    @property
    def requests(self):
        return self.parser.requests

    def resumable(self):
        return self.deferred.resumable()

    def snapshots(self, queues):
        return self.snapshot_maker.snapshots(queues)
