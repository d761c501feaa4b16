"""Lines in: see parsing.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.account cimport Account, Work
from mqks.core.bounding cimport QueueLimits
from mqks.core.confirming cimport Confirmations
from mqks.core.deferred cimport DeferredInput
from mqks.core.events cimport Events
from mqks.core.memory cimport Memory
from mqks.core.output cimport Output
from mqks.core.parts cimport Connection
from mqks.core.routing cimport Router
from mqks.core.seen cimport Seen
from mqks.core.settling cimport Acks
from mqks.core.tail cimport Tail


@cython.final
cdef class Parser:
    cdef Account account
    cdef Memory* memory                 # of the account
    cdef Work work
    cdef Tail log
    cdef Events events
    cdef Seen seen
    cdef Output output
    cdef Confirmations confirmations
    cdef Acks acks
    cdef QueueLimits limits
    cdef Router router
    cdef DeferredInput deferred
    cdef object handler                 # of all other lines: see callbacks.py
    cdef readonly uint64_t requests     # lines that went to the handler
    cdef readonly uint64_t bytes_in     # taken from all clients, also from those that are gone
    cdef uint64_t until                 # so many requests,
    cdef uint64_t exhausted             # or so much effort, and it is another connection's turn

    cdef void begin_share(self) noexcept
    cdef void end_share(self) noexcept
    cpdef int resume(self, Connection c) except -1
    cdef int detach(self, Connection c) except -1
    cdef int take_bytes(self, Connection c, char* p, size_t size) except -1
    cdef char* take_lines(self, Connection c, char* p, char* end) except NULL
    cdef int take_line(self, Connection c, char* p, char* end, bint clean) except -1
    cdef bint publish_line(self, Connection c, char* p, char* after_id, char* end) except -1
    cdef bint ack_line(self, Connection c, char* after_id, char* end) except -1
    cdef int keep_partial(self, Connection c, char* p, size_t size) except -1
