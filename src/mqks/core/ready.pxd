"""What is ready in queues: see ready.pyx. What happens for each message is here, to be inlined."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core cimport fifo
from mqks.core.account cimport Account
from mqks.core.memory cimport Memory
from mqks.core.parts cimport Consumer, Queue, become_candidate


@cython.final
cdef class Ready:
    cdef Account account
    cdef Memory* memory                 # of the account
    cdef object files                   # parts of long queues on disk: see callbacks.py
    cdef list dirty_queues              # those from which a delivery may be possible
    cdef size_t spill_after             # with so many ready in a queue, its full chunks go to disk; 0: never

    cdef int spill(self, fifo.Chunk* full) except -1
    cdef bint bring_back(self, Queue q) except -1


cdef inline void soil(Ready ready, Queue q) noexcept:
    """Something changed that may allow a delivery from this queue."""
    if not q.dirty and q.consumers.count and (q.ready.count or q.returned.count):
        q.dirty = True
        ready.dirty_queues.append(q)


cdef inline void may_take(Ready ready, Consumer c) noexcept:
    """Something changed that may give this consumer room."""
    become_candidate(c)
    soil(ready, c.queue)


cdef inline int push_ready(Ready ready, Queue q, uint64_t item) except -1:
    """An item to the tail of a queue."""
    cdef fifo.Chunk* last = q.ready.last
    if fifo.push(&q.ready, ready.memory, item) and ready.spill_after and q.ready.count > ready.spill_after:
        if last != q.ready.first:       # it is full; the first one is needed soon
            ready.spill(last)
    return 0


cdef inline uint64_t pop_ready(Ready ready, Queue q) except? 9:
    """The item at the head of a queue, which must not be empty."""
    if q.ready.first.items == NULL and not ready.bring_back(q):
        raise OSError("a part of a queue cannot be read")
    return fifo.pop(&q.ready, ready.memory)
