"""Queues for a checkpoint, and after a start: see snapshots.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.account cimport Account
from mqks.core.buffer cimport Buffer
from mqks.core.events cimport Events
from mqks.core.memory cimport Memory
from mqks.core.parts cimport Queue
from mqks.core.ready cimport Ready
from mqks.core.routing cimport Router
from mqks.core.seen cimport Seen
from mqks.core.tail cimport Tail


@cython.final
cdef class Snapshots:
    cdef Account account
    cdef Memory* memory                 # of the account
    cdef Tail log
    cdef Events events
    cdef Seen seen
    cdef Ready ready
    cdef Router router
    cdef object files                   # the journal's: see callbacks.py

    cdef int add_snapshot(self, Queue q, Buffer* words) except -1
    cdef int replay_line(self, uint64_t position, char* line, char* end, double time) except -1
