"""Consumers come and go, and what they were given is settled or returns to its queue.

A delivery stays in its consumer's ring until it is acked, or has left the broker (auto ack); then the log lets it go. Rejected, it
goes to the tail of its queue; returned, to its old place. Retries are counted here. It touches rings, queues and the log, and
says nothing to anyone.

A peer that has closed may have sent acks that the broker has not processed yet. So its messages return only after its remaining
input. Meanwhile it stands in Queue.returning. Consumers that join the queue after the close are its successors: they get nothing yet,
or they would get newer messages first.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

from mqks.core cimport buffer, fifo, heap, unsettled
from mqks.core.account cimport Account, Work
from mqks.core.item cimport MANY_RETRIES, item_of, position_of, retries_of
from mqks.core.output cimport Output, choked
from mqks.core.parts cimport Connection, Consumer, Consumers, Queue
from mqks.core.hashing cimport hash_of
from mqks.core.progress cimport Progress, note
from mqks.core.ready cimport Ready, may_take, pop_ready, push_ready, soil
from mqks.core.sealing cimport speaks
from mqks.core.sizes cimport LineSizes
from mqks.core.tail cimport Tail, let_go
from mqks.core.unsettled cimport NONE, Unsettled

ctypedef int (*Settlement)(Acks acks, Consumer c, uint64_t number) except -1


@cython.final
cdef class Acks:
    def __init__(
        self, Account account, Work work, Tail log, Ready ready, Progress progress, LineSizes sizes, Output output, *, uint64_t seed
    ):
        self.account = account
        self.memory = &account.memory
        self.work = work
        self.log = log
        self.ready = ready
        self.progress = progress
        self.sizes = sizes
        self.output = output
        self.seed = seed

    def join(self, Connection c, bytes id, Queue q, int dialect, bint manual_ack, size_t prefetch):
        """A new consumer of this queue."""
        cdef Consumer consumer = Consumer(id, c, q)
        consumer.dialect = dialect
        consumer.manual_ack = manual_ack
        consumer.prefetch = prefetch
        if q.returning:
            consumer.succeeds = True
            consumer.closes = self.closes
            if q.successors is None:
                q.successors = {}
            q.successors[consumer] = None
        if c.consumers is None:
            c.consumers = {}
        c.consumers[id] = consumer
        q.consumers.add(consumer, self.memory)
        self.consumers += 1
        soil(self.ready, q)
        return consumer

    def change(self, Consumer c, int dialect, bint manual_ack, size_t prefetch):
        """New options for a consumer that stays."""
        if c.manual_ack and not manual_ack:
            return_left(self, c, True)
            if c.ring.live:
                settle_when_sent(c)
        c.dialect = dialect
        c.manual_ack = manual_ack
        c.prefetch = prefetch
        may_take(self.ready, c)

    def pause(self, Consumer c, bint yes):
        """Give it nothing for now, or go on."""
        c.paused = yes
        may_take(self.ready, c)

    cdef int end_deliveries(self, Connection c) except -1:
        """The peer has closed: its consumers get no more messages, and those that join later wait for what returns. Idempotent: its
        consumers are looked at once, which counts as effort. None of them gets more: high_water is 0."""
        cdef Consumer consumer
        cdef dict returning
        c.peer_closed = True
        c.high_water = 0
        if c.returns_known or not c.consumers or (not c.gone and is_stalled(self, c)):
            return 0
        c.returns_known = True
        self.work.effort += len(c.consumers)
        for consumer in c.consumers.values():
            if consumer.ring.live:
                if not c.closing:
                    self.closes += 1
                    c.closing = self.closes
                consumer.returns = True
                if consumer.queue.returning is None:
                    consumer.queue.returning = {}
                returning = consumer.queue.returning
                returning[c] = returning.get(c, 0) + 1
        return 0

    cdef int review_returning(self, Connection c) except -1:
        """Nobody waits for a peer that is half-closed and does not read its replies: its input is not processed, and that may last for
        ever."""
        cdef Consumer consumer
        if c.closing and is_stalled(self, c):
            c.closing = 0
            c.returns_known = False
            self.work.effort += len(c.consumers)
            for consumer in c.consumers.values():
                stop_waiting_for(self, consumer)
        return 0

    def leave(self, Consumer c, bint disconnected):
        """The consumer takes no more; what it has not settled goes back to its queue."""
        disconnected = disconnected or c.connection.unreachable
        forget(self, c)
        c.queue.consumers.remove(c, self.memory)
        if c.manual_ack or disconnected:
            return_unsettled(self, c, disconnected)
        elif c.ring.live:
            if c.queue.leaving is None:
                c.queue.leaving = {}
            c.queue.leaving[c] = None
        free_if_gone(self, c)
        stop_waiting_for(self, c)

    def return_some(self, Consumer c, size_t most, bint disconnected):
        """The consumer will leave: at most so many deliveries return to the queue before. Answers whether few are left."""
        disconnected = disconnected or c.connection.unreachable
        if c.ring.live <= most or not (c.manual_ack or disconnected):
            return True
        unsettled.drop_index(&c.ring, self.memory)
        while most:
            return_to_queue(self, c, c.ring.head, not disconnected or has_left(c, c.ring.head))
            most -= 1
        return False

    cdef int detach(self, Connection c) except -1:
        """The connection is gone: deliveries that never left return. Its consumers get no more, and leave later."""
        cdef Consumer consumer
        if c.settling is not None:
            for consumer in c.settling:
                return_unsettled(self, consumer, True)
                free_if_gone(self, consumer)
        c.gone = True
        c.settling = c.starved = None
        return self.end_deliveries(c)

    def delete_queue(self, Queue q):
        """Drop a queue and all it holds; its consumers are gone."""
        cdef Consumer c
        q.gone = True
        q.returning = None
        for c in q.consumers:
            forget(self, c)
            c.place = -1
            c.dismissed = True
            settle_all(self, c)
        for c in list(q.leaving or ()):         # else a checkpoint would keep what no queue knows of
            settle_all(self, c)
        while q.ready.count and (q.ready.first.items != NULL or self.ready.bring_back(q)):
            let_go(self.log, position_of(pop_ready(self.ready, q)))
        while q.returned.count:
            let_go(self.log, position_of(heap.heap_pop(&q.returned, self.memory).item))
        fifo.clear(&q.ready, self.memory)
        buffer.release(&q.progress, self.memory)
        self.memory.used -= len(q.retries) * RETRIES_COST
        q.retries = {}
        left = list(q.consumers)
        q.consumers.set_words(1, self.memory)
        q.consumers = Consumers()
        q.successors = None
        return left

    cdef bint settle_next(self, Queue q) except -1:
        """Settle the message that would be delivered next; false: none is ready, or it cannot be read. Taken from the head and
        settled, as if a consumer had been given it and had acked: so the journal knows what to say of it."""
        cdef uint64_t item
        if q.returned.count:
            item = heap.heap_pop(&q.returned, self.memory).item
        elif q.ready.count and (q.ready.first.items != NULL or self.ready.bring_back(q)):
            item = pop_ready(self.ready, q)
            q.sequence += 1
        else:
            return False
        q.unsettled += 1
        let_item_go(self, q, item)
        return True

    def ack(self, Consumer c, bytes id):
        """Settle the first delivery of this message id, or all that have left (None)."""
        by_hand(self, c, id, acknowledge)

    def reject(self, Consumer c, bytes id):
        """Put the first delivery of this message id, or all that have left (None), at the tail of the queue."""
        by_hand(self, c, id, to_tail)

    cdef bint ack_id(self, Consumer c, const char* id, size_t size) except -1:
        cdef uint64_t number = unsettled.take_id(&c.ring, self.memory, hash_of(id, size, self.seed))
        if number == NONE:
            return False
        acknowledge(self, c, number)
        if c.prefetch:
            may_take(self.ready, c)
        return True

    cdef int settle_sent(self, Consumer c) except -1:
        """Auto ack: what has left is settled."""
        cdef unsettled.Ring* ring = &c.ring
        cdef Queue q = c.queue
        cdef uint64_t sent = c.connection.sent
        cdef Unsettled* given
        cdef uint64_t last = ring.tail
        unsettled.drop_index(ring, self.memory)
        while ring.head < last:
            given = unsettled.slot(ring, ring.head)
            if given.item == NONE:          # acked by hand before the consumer changed to auto ack
                ring.head += 1
                continue
            if given.end > sent:
                break
            let_item_go(self, q, given.item)
            ring.head += 1
            ring.live -= 1
        if ring.live == 0:
            unsettled.emptied(ring, self.memory)
        review_emptied(self, c)
        if c.prefetch:
            may_take(self.ready, c)
        return 0


cdef inline bint is_stalled(Acks acks, Connection c) noexcept:
    """Is its input not processed until its peer reads?"""
    return choked(acks.output, c) or speaks(c)


cdef inline int review_emptied(Acks acks, Consumer c) except -1:
    """A delivery of this consumer is settled or has returned: perhaps it was the last one that its successors wait for."""
    return stop_waiting_for(acks, c) if c.returns and c.ring.live == 0 else 0


cdef int stop_waiting_for(Acks acks, Consumer c) except -1:
    """Nothing returns from this consumer any more: if it was the last one of its connection, successors may be served."""
    cdef dict returning = c.queue.returning
    if c.returns and returning is not None:
        returning[c.connection] -= 1
        if not returning[c.connection]:
            del returning[c.connection]
            serve_successors(acks, c.queue)
    c.returns = False
    return 0


cdef int serve_successors(Acks acks, Queue q) except -1:
    """Those get messages now that joined before the first of the closes that are left. Both are in order."""
    cdef Connection first = next(iter(q.returning), None)
    cdef list ready = []
    cdef Consumer c
    for c in q.successors or ():
        if first is not None and c.closes >= first.closing:
            break
        ready.append(c)
    for c in ready:
        c.succeeds = False
        del q.successors[c]
        may_take(acks.ready, c)
    return 0


cdef int free_if_gone(Acks acks, Consumer c) except -1:
    """A small ring stays with its consumer when it empties; with one that is gone there is no use for it."""
    if c.gone and c.ring.live == 0:
        unsettled.free_ring(&c.ring, acks.memory)
        if c.queue.leaving is not None:
            c.queue.leaving.pop(c, None)
    return 0


cdef list holders(Queue q):
    """The consumers that have messages of this queue, also those that have left."""
    cdef list found = []
    cdef Consumer c
    if q.unsettled:
        for c in q.consumers.places:
            if c is not None and c.ring.live:
                found.append(c)
        if q.leaving is not None:
            found.extend(q.leaving)
    return found


cdef int settle_all(Acks acks, Consumer c) except -1:
    """One that is gone, with its queue."""
    unsettled.drop_index(&c.ring, acks.memory)
    while c.ring.live:
        settle(acks, c, c.ring.head)
    return free_if_gone(acks, c)


cdef int forget(Acks acks, Consumer c) except -1:
    acks.consumers -= 1
    c.gone = True
    if c.succeeds:
        c.succeeds = False
        del c.queue.successors[c]
    del c.connection.consumers[c.id]
    if c.connection.recent is c:
        c.connection.recent = None
    return 0


cdef inline bint has_left(Consumer c, uint64_t number) noexcept:
    cdef Unsettled* given = unsettled.slot(&c.ring, number)
    return given.item != NONE and given.end <= c.connection.sent


cdef int settle(Acks acks, Consumer c, uint64_t number) except -1:
    """Done with this delivery. The caller has taken it out of the ring's index."""
    let_item_go(acks, c.queue, unsettled.slot(&c.ring, number).item)
    unsettled.settled(&c.ring, acks.memory, number)
    return review_emptied(acks, c)


cdef int by_hand(Acks acks, Consumer c, bytes id, Settlement settlement) except -1:
    """Do this with the first delivery of a message id, or with all that have left (None), in the order of delivery."""
    cdef uint64_t number
    cdef uint64_t last
    if not c.manual_ack:
        return 0
    if id is not None:
        number = unsettled.take_id(
            &c.ring, acks.memory, hash_of(PyBytes_AS_STRING(id), PyBytes_GET_SIZE(id), acks.seed)
        )
        if number != NONE:
            settlement(acks, c, number)
    else:
        unsettled.drop_index(&c.ring, acks.memory)
        number = c.ring.head
        last = c.ring.tail
        while number < last and c.ring.live:
            if has_left(c, number):
                settlement(acks, c, number)
            number += 1
    may_take(acks.ready, c)
    return 0


cdef int acknowledge(Acks acks, Consumer c, uint64_t number) except -1:
    settle(acks, c, number)
    c.queue.acked += 1
    acks.acked += 1
    return 0


cdef int to_tail(Acks acks, Consumer c, uint64_t number) except -1:
    cdef uint64_t item = unsettled.slot(&c.ring, number).item
    push_ready(acks.ready, c.queue, retried(acks, c.queue, item))
    unsettled.settled(&c.ring, acks.memory, number)
    c.queue.unsettled -= 1
    c.queue.rejected += 1
    acks.rejected += 1
    return review_emptied(acks, c)


cdef int return_unsettled(Acks acks, Consumer c, bint disconnected) except -1:
    """All that a consumer held goes back; nobody has seen what was still in the buffer of a dead connection."""
    return_left(acks, c, disconnected)
    while c.ring.live:
        return_to_queue(acks, c, c.ring.head, False)
    return 0


cdef int return_left(Acks acks, Consumer c, bint only_left) except -1:
    """Deliveries go back with one retry more: those that have left, or all of them."""
    cdef uint64_t number = c.ring.head
    cdef uint64_t last = c.ring.tail
    unsettled.drop_index(&c.ring, acks.memory)
    while number < last and c.ring.live:
        if has_left(c, number) or (not only_left and unsettled.slot(&c.ring, number).item != NONE):
            return_to_queue(acks, c, number, True)
        number += 1
    return 0


cdef int return_to_queue(Acks acks, Consumer c, uint64_t number, bint seen) except -1:
    """A delivery goes back to its old place, with one retry more if the consumer may have seen it."""
    cdef Unsettled* given = unsettled.slot(&c.ring, number)
    cdef Queue q = c.queue
    if q.gone:
        return settle(acks, c, number)
    heap.heap_push(&q.returned, acks.memory, retried(acks, q, given.item) if seen else given.item, given.sequence)
    unsettled.settled(&c.ring, acks.memory, number)
    q.unsettled -= 1
    soil(acks.ready, q)
    return review_emptied(acks, c)


cdef uint64_t retried(Acks acks, Queue q, uint64_t item) except? 9:
    """The item with one retry more."""
    cdef uint64_t position = position_of(item)
    cdef uint64_t count = retries_of(item)
    if count + 1 < MANY_RETRIES:
        count += 1
        item = item_of(position, count)
    else:
        count = q.retries.get(position, count) + 1
        count_retries(acks.account, q, position, count)
        item = item_of(position, MANY_RETRIES)
    q.retried += 1
    q.retrying = max(q.retrying, count)
    note(acks.progress, q, item)
    return item


cdef int count_retries(Account account, Queue q, uint64_t position, uint64_t count) except -1:
    """Note a count that does not fit beside the position."""
    if position not in q.retries:
        account.memory.used += RETRIES_COST
    q.retries[position] = count
    return 0


cdef object retry_of(Queue q, uint64_t item):
    """How often the item was retried."""
    cdef uint64_t count = retries_of(item)
    return count if count < MANY_RETRIES else q.retries.get(position_of(item), MANY_RETRIES)    # a start knows no more
