"""Bytes of the messages in queues whose bytes are limited: see sizes.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.account cimport Work
from mqks.core.parts cimport Queue
from mqks.core.tail cimport Tail


@cython.final
cdef class LineSizes:
    cdef Work work
    cdef Tail log
    cdef object files                   # the journal's: see callbacks.py
    cdef uint64_t read_back             # bytes of the log, while all waited

    cdef void came(self, Queue q) noexcept
    cdef int goes(self, Queue q, uint64_t position) except -1
    cdef size_t size_at(self, uint64_t position) except? 1
