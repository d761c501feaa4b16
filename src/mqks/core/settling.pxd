"""Consumers, and what they were given and have not settled: see settling.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.account cimport Account, Work
from mqks.core.item cimport MANY_RETRIES, position_of, retries_of
from mqks.core.memory cimport Memory
from mqks.core.output cimport Output
from mqks.core.parts cimport Connection, Consumer, Queue
from mqks.core.progress cimport Progress, note
from mqks.core.ready cimport Ready
from mqks.core.sizes cimport LineSizes
from mqks.core.tail cimport Tail, let_go


@cython.final
cdef class Acks:
    cdef Account account
    cdef Memory* memory                 # of the account
    cdef Work work
    cdef Tail log
    cdef Ready ready
    cdef Progress progress
    cdef LineSizes sizes
    cdef Output output
    cdef uint64_t seed                  # of the hashes of message ids
    cdef readonly uint64_t acked
    cdef readonly uint64_t rejected
    cdef uint64_t closes                # of connections that stood in Queue.returning
    cdef readonly size_t consumers      # of all queues

    cdef int end_deliveries(self, Connection c) except -1
    cdef int review_returning(self, Connection c) except -1
    cdef int detach(self, Connection c) except -1
    cdef bint ack_id(self, Consumer c, const char* id, size_t size) except -1
    cdef int settle_sent(self, Consumer c) except -1
    cdef bint settle_next(self, Queue q) except -1


cdef enum:
    RETRIES_COST = 200          # bytes of an entry of Queue.retries

cdef object retry_of(Queue q, uint64_t item)
cdef list holders(Queue q)
cdef int count_retries(Account account, Queue q, uint64_t position, uint64_t count) except -1
cdef int free_if_gone(Acks acks, Consumer c) except -1


cdef inline int settle_when_sent(Consumer c) except -1:
    """Auto ack: `settle_sent` has to see this consumer when bytes have left."""
    if not c.settling:
        c.settling = True
        if c.connection.settling is None:
            c.connection.settling = []
        c.connection.settling.append(c)
    return 0


cdef inline int let_item_go(Acks acks, Queue q, uint64_t item) except -1:
    """One delivery from this queue is done with, wherever it stood."""
    if retries_of(item) == MANY_RETRIES and q.retries.pop(position_of(item), None) is not None:
        acks.memory.used -= RETRIES_COST
    if q.limited:
        acks.sizes.goes(q, position_of(item))
    let_go(acks.log, position_of(item))
    if acks.log.journaled:
        note(acks.progress, q, position_of(item))
    q.unsettled -= 1
    return 0
