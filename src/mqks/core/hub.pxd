"""The core as a whole, which takes lines: see hub.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.bounding cimport Bounder
from mqks.core.parts cimport Connection


@cython.final
cdef class Core(Bounder):
    cdef readonly uint64_t requests     # lines that went to the handler
    cdef uint64_t until                 # so many requests,
    cdef uint64_t exhausted             # or so much effort, and it is another connection's turn
    cdef dict held_back                 # connections with bytes that wait, as keys, those first that have waited longest

    cpdef int on_peer_closed(self, Connection c, bint unreachable) except -1
    cpdef list resumable(self)
    cdef int postpone(self, list waited) except -1
    cpdef int resume(self, Connection c) except -1
    cdef int take_bytes(self, Connection c, char* p, size_t size) except -1
    cdef char* take_lines(self, Connection c, char* p, char* end) except NULL
    cdef int hold_back(self, Connection c) except -1
    cdef int take_line(self, Connection c, char* p, char* end, bint clean) except -1
    cdef bint publish_line(self, Connection c, char* p, char* after_id, char* end) except -1
    cdef bint ack_line(self, Connection c, char* after_id, char* end) except -1
    cdef int keep_partial(self, Connection c, char* p, size_t size) except -1
