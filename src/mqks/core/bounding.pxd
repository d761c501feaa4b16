"""Queues within their limits: see bounding.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.account cimport Account
from mqks.core.memory cimport Memory
from mqks.core.parts cimport Queue
from mqks.core.settling cimport Acks
from mqks.core.sizes cimport LineSizes
from mqks.core.tail cimport Tail


@cython.final
cdef class QueueLimits:
    cdef Account account
    cdef Memory* memory                 # of the account
    cdef Tail log
    cdef LineSizes sizes
    cdef Acks acks
    cdef object policy                  # is told of queues that are too long: see callbacks.py
    cdef object files                   # parts of long queues on disk: likewise
    cdef size_t limited                 # how many queues have a limit of their length
    cdef readonly uint64_t dropped

    cdef int came(self, Queue q) except -1
    cdef bint drop_oldest(self, Queue q, size_t most, uint64_t most_read) except -1
