"""Messages from queues to consumers: at the end of a turn, queue by queue, to consumers with room, round robin.

The text goes from the log into the out-buffer of the consumer's connection, the item into the consumer's ring of what is
unsettled. When bytes have left, auto acks are settled and those that had no room are served again. It takes from queues, rings
and out-buffers; it takes no lines and puts no messages.
"""

from heapq import heappop, heappush

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memchr, memcpy

from mqks.core cimport fifo, heap, unsettled
from mqks.core.account cimport Account, Work
from mqks.core.deferred cimport DeferredInput
from mqks.core.hashing cimport hash_of
from mqks.core.item cimport MANY_RETRIES, item_of, position_of, retries_of
from mqks.core.output cimport Output, choked, out_room
from mqks.core.parts cimport (
    MQKS, SEVX, Connection, Consumer, Consumers, Queue, clear_candidate, has_room, next_candidate, waiting
)
from mqks.core.keeping cimport Persistence
from mqks.core.progress cimport Progress, has_moved, note
from mqks.core.ready cimport Ready, may_take, pop_ready, soil
from mqks.core.settling cimport Acks, free_if_gone, let_item_go, retry_of, settle_when_sent
from mqks.core.tail cimport SEGMENT, Segment, Tail, find
from mqks.core.text cimport after_flag, copy_short
from mqks.core.unsettled cimport Unsettled

cdef enum:
    AHEAD = 8                   # segments that are read from disk before they are wanted
    QUOTA = 131072              # effort of all deliveries of one turn: some 15 ms
    BYTES = 8                   # a delivery of 2 ** 8 bytes more is as much effort as one more delivery
    EASING = 65536              # effort, after which those who could not be told for lack of memory wait for another turn


@cython.final
cdef class Delivery:
    def __init__(
        self, Account account, Work work, Tail log, Ready ready, Progress progress, Output output, Acks acks,
        Persistence persistence, DeferredInput deferred, renderer, files, *, uint64_t seed,
    ):
        self.account = account
        self.memory = &account.memory
        self.work = work
        self.log = log
        self.ready = ready
        self.progress = progress
        self.output = output
        self.acks = acks
        self.persistence = persistence
        self.deferred = deferred
        self.renderer = renderer
        self.files = files
        self.seed = seed
        self.serving = []
        self.waiting = {}
        self.unserved = {}
        self.roomy = []

    cdef void begin_turn(self) noexcept:
        self.quota = self.work.effort + QUOTA

    cdef bint begin_round(self) except -1:
        """A round serves the queues that are dirty now. One that something cut short goes on where it was. False: there is nothing
        to do, or nothing may be delivered: a message that is not written, or a delivery that cannot be recorded, could be undone."""
        if self.account.squeezed and self.memory.used < self.account.max_memory:
            self.ease()
        if self.persistence.stalled:
            return False
        if self.unserved and self.memory.used < self.account.ceiling:
            self.serve_again()
        if self.served == PyList_GET_SIZE(self.serving):
            self.serving = self.ready.dirty_queues
            self.served = 0
            self.ready.dirty_queues = []
        return PyList_GET_SIZE(self.serving) > 0

    cdef Queue serve_next(self):
        """Serve the next queue of the round and answer it; None: the round is over."""
        cdef Queue q
        if self.served == PyList_GET_SIZE(self.serving):
            self.serving = []
            self.served = 0
            return None
        q = <Queue>PyList_GET_ITEM(self.serving, self.served)
        self.served += 1
        self.work.effort += 1
        self.serve(q)
        return q

    cdef int serve(self, Queue q) except -1:
        """Give what is ready to those who have room, as far as the quota goes."""
        cdef Ready ready = self.ready       # these once for all messages: an attribute that is passed on is counted each time
        cdef Tail log = self.log
        cdef Output output = self.output
        cdef int64_t all_left = self.quota - self.work.effort
        cdef int64_t left = all_left
        cdef Consumer c = None
        cdef heap.Returned next
        cdef bint alone = q.consumers.count == 1
        cdef bint in_hand = False
        q.dirty = False
        if q.waits or q.suspended:
            return 0
        has_moved(self.progress, q)
        try:
            while q.ready.count or q.returned.count:
                if left <= 0:
                    soil(ready, q)
                    break
                if c is None or not alone or not has_room(c):
                    c = next_in_turn(q.consumers)
                    if c is None:
                        c = next_with_room(q, &left)
                        if c is None:
                            if left <= 0:
                                soil(ready, q)
                            break
                if self.memory.used >= self.account.ceiling:
                    self.unserved[q] = None
                    break
                if log.journaled and not next_in_reach(log, q) and not self.at_hand(q):
                    break
                if q.returned.count:
                    next = heap.heap_pop(&q.returned, self.memory)
                    if retries_of(next.item) < MANY_RETRIES:    # after a crash it is one retry more, as what is taken first is
                        note(self.progress, q, item_of(position_of(next.item), retries_of(next.item) + 1))
                else:
                    q.sequence += 1
                    next.item = pop_ready(ready, q)
                    next.sequence = q.sequence
                in_hand = True
                left -= 1 + (give(self, output, log, q, c, next.item, next.sequence) >> BYTES)
                in_hand = False
        except BaseException:
            if in_hand:
                heap.heap_push(&q.returned, self.memory, next.item, next.sequence)
            soil(ready, q)
            raise
        self.work.effort += all_left - left
        return 0

    cdef int serve_again(self) except -1:
        """There is memory for deliveries again."""
        cdef dict unserved = self.unserved
        cdef Queue q
        self.unserved = {}
        for q in unserved:
            soil(self.ready, q)
        return 0

    cdef bint at_hand(self, Queue q) except -1:
        """Is the next message of this queue in memory? If not, it is asked for, and the queue waits."""
        cdef uint64_t position
        cdef Segment* segment
        cdef size_t at
        cdef size_t ahead
        cdef size_t i
        if q.returned.count:
            position = position_of(q.returned.items[0].item)
        else:
            if q.ready.first.items == NULL and not self.ready.bring_back(q):
                q.waits = True          # for ever: the broker has to stop
                return False
            position = position_of(q.ready.first.items[q.ready.first.head])
        segment = find(self.log, position)
        if segment.data != NULL:
            return True
        q.waits = True
        self.waiting.setdefault(segment.start, []).append(q)
        at = self.log.index(segment.start)
        ahead = min(AHEAD, self.log.most_resident // (4 * SEGMENT))
        for i in range(at, min(at + 1 + ahead, self.log.last)):
            segment = self.log.segments[i]
            if segment.data == NULL and segment.live and not segment.asked_for:
                segment.asked_for = True
                self.files.load(segment.start, segment.size)
        return False

    def peek(self, Queue q, size_t limit):
        """Position and retries of the next messages, at most so many, in the order in which they would be delivered. What is
        ready and cannot be seen is not in the list, nor is what comes after it."""
        cdef list found = []
        cdef list next = [(q.returned.items[0].sequence, 0)] if q.returned.count else []
        cdef fifo.Chunk* chunk = q.ready.first
        cdef bytes on_disk
        cdef uint64_t* items
        cdef size_t at
        cdef size_t child
        while next and <size_t>len(found) < limit:      # a heap in order, without taking from it
            at = heappop(next)[1]
            found.append((position_of(q.returned.items[at].item), retry_of(q, q.returned.items[at].item)))
            for child in range(2 * at + 1, min(2 * at + 3, q.returned.count)):
                heappush(next, (q.returned.items[child].sequence, child))
        while chunk != NULL and <size_t>len(found) < limit:
            items = chunk.items
            if items == NULL:
                on_disk = self.files.look_at(chunk.where, chunk.tail)
                if on_disk is None:
                    break
                items = <uint64_t*>PyBytes_AS_STRING(on_disk)
            for at in range(chunk.head, min(<size_t>chunk.tail, chunk.head + limit - <size_t>len(found))):
                found.append((position_of(items[at]), retry_of(q, items[at])))
            chunk = chunk.next
        return found

    def loaded(self, uint64_t start, bytes data):
        """A segment that was asked for has been read; zeros stand for what is lost."""
        cdef Segment* segment = self.log.segments[self.log.index(start)]
        cdef Queue q
        segment.asked_for = False
        if segment.live and segment.data == NULL:       # else someone could not wait for it
            self.log.allot(segment, segment.size)
            memcpy(segment.data, PyBytes_AS_STRING(data), segment.size)
            self.log.evict()
        elif not segment.live:
            self.log.drop(segment)
        for q in self.waiting.pop(start, ()):
            q.waits = False
            soil(self.ready, q)

    def take_roomy(self):
        """The connections that read history and have room again."""
        cdef list roomy = self.roomy
        self.roomy = []
        return roomy

    def sent(self, Connection c, size_t size):
        """The first `size` bytes of what was pending have left."""
        self.took(c, size)

    cdef int took(self, Connection c, size_t size) except -1:
        cdef Consumer consumer
        cdef list some
        c.out.head += size
        c.sent += size
        if not c.inside:
            self.bytes_out += size
        if c.out.head == c.out.tail:
            self.output.drop_out(c)
        if c.settling:
            some = c.settling
            c.settling = []
            for consumer in some:
                consumer.settling = False
                if not consumer.manual_ack:
                    self.acks.settle_sent(consumer)
                    free_if_gone(self.acks, consumer)
                    if consumer.ring.live:
                        consumer.settling = True
                        c.settling.append(consumer)
        c.replies = min(c.replies, waiting(c))
        if not choked(self.output, c):
            self.output.tell_due(c)
            if c.waits:
                self.deferred.can_resume = True
        if c.reads_history and waiting(c) < self.output.high_water:
            c.reads_history = False
            self.roomy.append(c)
            self.rooms += 1
        if c.starved and waiting(c) < self.output.high_water:
            some = c.starved
            c.starved = []
            for consumer in some:
                consumer.starved = False
                may_take(self.ready, consumer)
        return 0

    cpdef int on_peer_closed(self, Connection c, bint unreachable) except -1:
        """The peer sends no more; unreachable: it does not read either. What has come from it is still processed. Idempotent."""
        if unreachable:
            c.unreachable = True
            self.output.drop_out(c)
            if c.waits:
                self.deferred.can_resume = True
        return self.acks.end_deliveries(c)

    cdef int ease(self) except -1:
        """There is memory again: those are told who could not be, some in each turn, and those are heard whose unread replies took
        too much of it."""
        cdef uint64_t enough = self.work.effort + EASING
        cdef Connection c
        self.account.squeezed = False
        self.deferred.can_resume = True
        while self.output.owed and self.work.effort < enough and self.memory.used < self.account.max_memory:
            c = self.output.owed.popitem()[0]
            self.work.effort += 1
            if not choked(self.output, c):
                self.output.tell_due(c)
        self.account.squeezed = self.account.squeezed or bool(self.output.owed)
        return 0


cdef inline bint next_in_reach(Tail log, Queue q) noexcept:
    """Is the next message where the last one was, in memory? Mostly it is."""
    cdef Segment* recent = log.recent
    cdef uint64_t position
    if q.returned.count or recent == NULL or recent.data == NULL or q.ready.first.items == NULL:
        return False
    position = position_of(q.ready.first.items[q.ready.first.head])
    return position - recent.start < recent.size


cdef inline Consumer next_in_turn(Consumers consumers):
    """Whose turn it is, if that one has room; mostly it has. None: look further."""
    cdef Py_ssize_t place = next_candidate(consumers, consumers.turn)
    cdef Consumer c
    if place < 0:
        return None
    c = <Consumer>PyList_GET_ITEM(consumers.places, place)
    if not has_room(c):
        return None
    consumers.turn = place + 1
    return c


cdef Consumer next_with_room(Queue q, int64_t* left):
    """Whose turn it is among those with room. None: each will be heard of when it has room again, or nothing is left of the quota."""
    cdef Consumers consumers = q.consumers
    cdef Py_ssize_t place = next_candidate(consumers, consumers.turn)
    cdef Consumer c
    while left[0] > 0:
        if place < 0:
            place = next_candidate(consumers, 0)
            if place < 0:
                return None
        c = <Consumer>PyList_GET_ITEM(consumers.places, place)
        if has_room(c):
            consumers.turn = place + 1
            return c
        left[0] -= 1
        clear_candidate(consumers, place)
        if not c.starved and waiting(c.connection) >= c.connection.high_water:
            c.starved = True
            if c.connection.starved is None:
                c.connection.starved = []
            c.connection.starved.append(c)
        place = next_candidate(consumers, place + 1)
    return None


cdef int64_t give(
    Delivery delivery, Output output, Tail log, Queue q, Consumer c, uint64_t item, uint64_t sequence
) except -1:
    """Answers how many bytes that was."""
    cdef uint64_t position = position_of(item)
    cdef Segment* segment = find(log, position)
    cdef char* line = segment.data + (position - segment.start)
    cdef char* after_id
    cdef char* end
    cdef char* rest = NULL
    cdef const char* between = NULL
    cdef size_t between_size = 0
    cdef size_t prefix_size = PyBytes_GET_SIZE(c.prefix)
    cdef size_t id_size
    cdef size_t size
    cdef char* to
    cdef bytes body
    cdef Connection connection = c.connection
    cdef Unsettled given
    if line[0] == 0:                    # the disk has lost it
        q.unsettled += 1
        let_item_go(delivery.acks, q, item)
        delivery.files.lost(q)
        return 0
    after_id = <char*>memchr(line, 32, segment.data + segment.size - line)
    end = <char*>memchr(after_id, 10, segment.data + segment.size - after_id)
    id_size = after_id - line
    if item == position:
        # Never retried, and in the consumer's own dialect: the line's own text serves.
        if after_id[1] == 112 and c.dialect == MQKS:            # p of publish
            rest = after_flag(after_id + 9, end)
            between = b" event="
            between_size = 7
        elif after_id[1] == 115 and c.dialect == SEVX:          # s of send
            rest = after_flag(after_id + 6, end)
            between = b" "
            between_size = 1
    if rest != NULL:
        size = prefix_size + id_size + between_size + (end + 1 - rest)
        to = out_room(output, connection, size)
        copy_short(to, PyBytes_AS_STRING(c.prefix), prefix_size)
        to += prefix_size
        copy_short(to, line, id_size)
        to += id_size
        copy_short(to, between, between_size)
        memcpy(to + between_size, rest, end + 1 - rest)
        connection.out.tail += size
    else:
        body = delivery.renderer.render(line[:end - line], c.dialect, retry_of(q, item))
        body = c.prefix + body + b"\n"
        size = PyBytes_GET_SIZE(body)
        memcpy(out_room(output, connection, size), PyBytes_AS_STRING(body), size)
        connection.out.tail += size
    given.item = item
    given.sequence = sequence
    given.end = connection.sent + waiting(connection)
    given.id = hash_of(line, id_size, delivery.seed)
    unsettled.add(&c.ring, delivery.memory, given)
    q.unsettled += 1
    q.delivered += 1
    c.delivered += 1
    delivery.delivered += 1
    if not c.manual_ack:
        settle_when_sent(c)
    return size
