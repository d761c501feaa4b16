"""Input that waits: see deferred.pyx."""

cimport cython

from mqks.core.output cimport Output
from mqks.core.parts cimport Connection
from mqks.core.settling cimport Acks


@cython.final
cdef class DeferredInput:
    cdef Output output
    cdef Acks acks
    cdef dict connections               # with bytes that wait, as keys, those first that have waited longest
    cdef bint can_resume                # one whose bytes wait has read its replies

    cpdef list resumable(self)
    cdef int postpone(self, list waited) except -1
    cdef int hold_back(self, Connection c) except -1
    cdef int detach(self, Connection c) except -1
