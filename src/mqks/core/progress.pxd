"""What became of messages, for the journal: see progress.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core cimport buffer
from mqks.core.account cimport Account
from mqks.core.memory cimport Memory
from mqks.core.parts cimport Queue
from mqks.core.tail cimport Tail


@cython.final
cdef class Progress:
    cdef Account account
    cdef Memory* memory                 # of the account
    cdef Tail log
    cdef list queues                    # of which the journal has something to know

    cdef bytes gather(self)


cdef inline int has_moved(Progress progress, Queue q) except -1:
    """Something happened in this queue that the journal has to know."""
    if not q.progressed and progress.log.journaled:
        q.progressed = True
        progress.queues.append(q)
    return 0


cdef inline int note(Progress progress, Queue q, uint64_t item) except -1:
    """An item was settled (its retries are 0 here) or retried (they are not)."""
    if progress.log.journaled and not q.gone:
        (<uint64_t*>buffer.reserve(&q.progress, progress.memory, sizeof(uint64_t)))[0] = item
        q.progress.tail += sizeof(uint64_t)
        has_moved(progress, q)
    return 0
