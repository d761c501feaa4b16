"""What goes to disk and comes back: see keeping.pyx."""

from libc.stdint cimport uint64_t

from mqks.core.buffer cimport Buffer
from mqks.core.delivery cimport Deliverer
from mqks.core.parts cimport Queue


cdef class Keeper(Deliverer):
    cdef object journal                 # writes what is given to it
    cdef public bint heeded             # it will look at what was written, also if it is not told again
    cdef public uint64_t synced         # the position up to which the journal is safely on disk

    cdef int write_now(self) except -1
    cdef bytes gather(self)
    cdef int add_snapshot(self, Queue q, Buffer* words) except -1
    cdef int replay_line(self, uint64_t position, char* line, char* end, double time) except -1


cdef inline int write_out(Keeper core) except -1:
    """What has happened since the last time goes to the journal, if there is one."""
    if core.tail.journaled and (
        core.tail.end != core.tail.written or core.progressed or core.held_new or core.stalled
    ):
        core.write_now()
    return 0
