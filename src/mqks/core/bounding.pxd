"""Queues within their limits: see bounding.pyx."""

from libc.stdint cimport uint64_t

from mqks.core.keeping cimport Keeper
from mqks.core.parts cimport Queue


cdef class Bounder(Keeper):
    cdef readonly uint64_t dropped
    cdef uint64_t read_back             # bytes of the log, while all waited

    cdef bint drop_oldest(self, Queue q, size_t most, uint64_t most_read) except -1
    cdef size_t size_at(self, uint64_t position) except? 1
