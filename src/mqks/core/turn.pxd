"""A turn of the broker, and the seam to whoever moves bytes: see turn.pyx."""

cimport cython

from mqks.core.account cimport Account, Work
from mqks.core.deferred cimport DeferredInput
from mqks.core.delivery cimport Delivery
from mqks.core.hub cimport Core
from mqks.core.keeping cimport Persistence
from mqks.core.output cimport Output
from mqks.core.parsing cimport Parser
from mqks.core.parts cimport Connection
from mqks.core.ready cimport Ready
from mqks.core.tail cimport Tail


cdef class Transport:
    """Moves bytes between clients and the core. `Turn` says when."""

    cdef public double patience     # seconds for which those are heard in a turn who have waited, and again for which others are read

    cdef double now(self) noexcept
    cdef int begin(self) except -1
    cdef int resume_input(self, Connection c) except -1
    cdef int read(self) except -1
    cdef int write(self) except -1
    cdef bint can_send(self, Connection c) noexcept
    cdef int flush(self, Connection c) except -1
    cdef bint end(self) except -1


@cython.final
cdef class Turn:
    cdef Account account
    cdef Work work
    cdef Tail log
    cdef Ready ready
    cdef Output output
    cdef Persistence persistence
    cdef DeferredInput deferred
    cdef Delivery delivery
    cdef Parser parser
    cdef object pump                # what Python goes on with

    cdef bint has_more(self) noexcept
    cdef bint take(self, Transport transport) except -1
    cdef int resume_deferred(self, Transport transport) except -1
    cdef int deliver_round(self, Transport transport) except -1
    cdef int flush_dirty(self, Transport transport) except -1


@cython.final
cdef class LocalTransport(Transport):
    cdef Parser parser
    cdef Delivery delivery
    cdef public object links        # moves the bytes: see turn.pyi; None: whoever has the broker feeds it, and says what was sent
