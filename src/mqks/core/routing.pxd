"""Messages to queues: see routing.pyx."""

from libc.stdint cimport uint64_t

from mqks.core cimport fifo
from mqks.core.events cimport Binding, Events
from mqks.core.output cimport Output
from mqks.core.parts cimport Consumer, Queue, become_candidate
from mqks.core.seen cimport Seen
from mqks.core.tail cimport Tail, hold


cdef class Router(Output):
    cdef readonly Tail tail
    cdef readonly Events events
    cdef readonly Seen seen              # ids of --once
    cdef uint64_t seed                  # of every table of names
    cdef Binding everything             # queues that take every MQKS message
    cdef int inspectors                 # how many patterns look into the data of every event
    cdef list dirty_queues              # those from which a delivery may be possible
    cdef readonly uint64_t published
    cdef readonly uint64_t effort       # work done so far: 1 for each queue that a message came to, and as much for what takes as long
    cdef size_t limited                 # how many queues have a limit of their length
    cdef size_t spill_after             # with so many ready in a queue, its full chunks go to disk; 0: never

    cdef int spill(self, Queue q, fifo.Chunk* full) except -1
    cdef bint bring_back(self, Queue q) except -1
    cdef uint64_t store(self, bytes line, bytes id, bytes scope) except? 1
    cdef int came(self, Queue q) except -1
    cdef int goes(self, Queue q, uint64_t position) except -1
    cdef Queue full_one(self, Binding binding, char* event, char* after_event, char* end, size_t size)
    cdef int route(self, Binding binding, uint64_t position, char* event, char* after_event, char* end) except -1


cdef inline void soil(Router core, Queue q) noexcept:
    """Something changed that may allow a delivery from this queue."""
    if not q.dirty and q.consumers.count and (q.ready.count or q.returned.count):
        q.dirty = True
        core.dirty_queues.append(q)


cdef inline void may_take(Router core, Consumer c) noexcept:
    """Something changed that may give this consumer room."""
    become_candidate(c)
    soil(core, c.queue)


cdef inline int push_ready(Router core, Queue q, uint64_t item) except -1:
    """An item to the tail of a queue."""
    cdef fifo.Chunk* last = q.ready.last
    if fifo.push(&q.ready, &core.memory, item) and core.spill_after and q.ready.count > core.spill_after:
        if last != q.ready.first:       # it is full; the first one is needed soon
            core.spill(q, last)
    return 0


cdef inline uint64_t pop_ready(Router core, Queue q) except? 9:
    """The item at the head of a queue, which must not be empty."""
    if q.ready.first.items == NULL and not core.bring_back(q):
        raise OSError("a part of a queue cannot be read")
    return fifo.pop(&q.ready, &core.memory)


cdef inline int put(Router core, Queue q, uint64_t position) except -1:
    """The position of the line just committed, once, to a queue."""
    core.effort += 1
    if q.stamp == position:
        return 0
    push_ready(core, q, position)
    hold(core.tail)
    q.stamp = position
    q.published += 1
    soil(core, q)
    if q.limited:
        core.came(q)
    return 0
