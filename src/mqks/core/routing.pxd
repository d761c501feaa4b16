"""Messages to queues: see routing.pyx."""

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint64_t

from mqks.core.events cimport Binding, Events
from mqks.core.output cimport Output
from mqks.core.parts cimport Queue
from mqks.core.tail cimport Tail


cdef class Router(Output):
    cdef readonly Tail tail
    cdef readonly Events events
    cdef uint64_t seed                  # of every table of names
    cdef list everything                # queues that take every MQKS message
    cdef int inspectors                 # how many patterns look into the data of every event
    cdef list dirty_queues              # those from which a delivery may be possible
    cdef readonly uint64_t published

    cdef int route(self, Binding binding, uint64_t position, char* event, char* after_event, char* end) except -1


cdef inline void soil(Router core, Queue q) noexcept:
    """Something changed that may allow a delivery from this queue."""
    if not q.dirty and PyList_GET_SIZE(q.consumers) and (q.ready.count or q.returned.count):
        q.dirty = True
        core.dirty_queues.append(q)
