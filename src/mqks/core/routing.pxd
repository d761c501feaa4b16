"""Messages to queues: see routing.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.account cimport Work
from mqks.core.bounding cimport QueueLimits
from mqks.core.events cimport Binding, Events
from mqks.core.parts cimport Queue
from mqks.core.ready cimport Ready
from mqks.core.seen cimport Seen
from mqks.core.tail cimport Tail


@cython.final
cdef class Router:
    cdef Work work
    cdef Tail log
    cdef Events events
    cdef Seen seen                      # ids of --once
    cdef Ready ready
    cdef QueueLimits limits
    cdef object patterns                # look into the data of messages: see callbacks.py
    cdef readonly uint64_t published

    cdef uint64_t store(self, bytes line, bytes id, bytes scope) except? 1
    cdef Queue full_one(self, Binding binding, char* event, char* after_event, char* end, size_t size)
    cdef int route(self, Binding binding, uint64_t position, char* event, char* after_event, char* end) except -1
    cdef int put_replayed(self, Queue q, uint64_t position) except -1
