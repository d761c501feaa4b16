"""Consumers, and what they were given and have not settled: see settling.pyx."""

from libc.stdint cimport uint64_t

from mqks.core.parts cimport Consumer, Queue
from mqks.core.routing cimport Router


cdef class Settler(Router):
    cdef readonly uint64_t acked
    cdef readonly uint64_t rejected

    cdef bint ack_id(self, Consumer c, const char* id, size_t size) except -1
    cdef int settle_sent(self, Consumer c) except -1


cdef object retry_of(Queue q, uint64_t item)


cdef inline int settle_when_sent(Consumer c) except -1:
    """Auto ack: `settle_sent` has to see this consumer when bytes have left."""
    if not c.settling:
        c.settling = True
        if c.connection.settling is None:
            c.connection.settling = []
        c.connection.settling.append(c)
    return 0
cdef void free_if_gone(Settler core, Consumer c) noexcept
