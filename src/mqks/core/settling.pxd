"""Consumers, and what they were given and have not settled: see settling.pyx."""

from libc.stdint cimport uint64_t

from mqks.core cimport buffer
from mqks.core.item cimport MANY_RETRIES, position_of, retries_of
from mqks.core.parts cimport Connection, Consumer, Queue
from mqks.core.routing cimport Router
from mqks.core.tail cimport let_go


cdef class Settler(Router):
    cdef readonly uint64_t acked
    cdef readonly uint64_t rejected
    cdef list progressed                # queues of which the journal has something to know
    cdef uint64_t closes                # of connections that stood in Queue.returning
    cdef readonly size_t consumers      # of all queues

    cdef int end_deliveries(self, Connection c) except -1
    cdef int review_returning(self, Connection c) except -1
    cdef bint ack_id(self, Consumer c, const char* id, size_t size) except -1
    cdef int settle_sent(self, Consumer c) except -1
    cdef bint settle_next(self, Queue q) except -1


cdef enum:
    RETRIES_COST = 200          # bytes of an entry of Queue.retries

cdef object retry_of(Queue q, uint64_t item)
cdef list holders(Queue q)
cdef int count_retries(Settler core, Queue q, uint64_t position, uint64_t count) except -1
cdef int free_if_gone(Settler core, Consumer c) except -1


cdef inline int progress(Settler core, Queue q) except -1:
    """Something happened in this queue that the journal has to know."""
    if not q.progressed and core.tail.journaled:
        q.progressed = True
        core.progressed.append(q)
    return 0


cdef inline int note(Settler core, Queue q, uint64_t item) except -1:
    """An item was settled (its retries are 0 here) or retried (they are not)."""
    if core.tail.journaled and not q.gone:
        (<uint64_t*>buffer.reserve(&q.progress, &core.memory, sizeof(uint64_t)))[0] = item
        q.progress.tail += sizeof(uint64_t)
        progress(core, q)
    return 0


cdef inline int settle_when_sent(Consumer c) except -1:
    """Auto ack: `settle_sent` has to see this consumer when bytes have left."""
    if not c.settling:
        c.settling = True
        if c.connection.settling is None:
            c.connection.settling = []
        c.connection.settling.append(c)
    return 0


cdef inline int let_item_go(Settler core, Queue q, uint64_t item) except -1:
    """One delivery from this queue is done with, wherever it stood."""
    if retries_of(item) == MANY_RETRIES and q.retries.pop(position_of(item), None) is not None:
        core.memory.used -= RETRIES_COST
    if q.limited:
        core.goes(q, position_of(item))
    let_go(core.tail, position_of(item))
    note(core, q, position_of(item))
    q.unsettled -= 1
    return 0
