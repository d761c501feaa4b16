"""What became of messages since the journal was last written, queue by queue.

Words of 8 bytes, as the machine has them. For each queue: birth, items taken so far, count, and so many items (retries of 0: settled;
else: retried, or delivered again).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from mqks.core cimport buffer
from mqks.core.account cimport Account
from mqks.core.parts cimport Queue
from mqks.core.tail cimport Tail


@cython.final
cdef class Progress:
    def __init__(self, Account account, Tail log):
        self.account = account
        self.memory = &account.memory
        self.log = log
        self.queues = []

    cdef bytes gather(self):
        """The progress of all queues since the last time, in words."""
        cdef list queues = self.queues
        cdef size_t size = 0
        cdef Queue q
        cdef bytes data
        cdef uint64_t* to
        self.queues = []
        for q in queues:
            size += 3 * sizeof(uint64_t) + q.progress.tail
        data = PyBytes_FromStringAndSize(NULL, size)
        to = <uint64_t*>PyBytes_AS_STRING(data)
        for q in queues:
            q.progressed = False
            to[0] = q.birth
            to[1] = q.sequence
            to[2] = q.progress.tail // sizeof(uint64_t)
            to += 3
            if q.progress.tail:
                memcpy(to, q.progress.data, q.progress.tail)
                to += q.progress.tail // sizeof(uint64_t)
                if q.progress.capacity > 4096:
                    buffer.release(&q.progress, self.memory)
                q.progress.tail = 0
        return data
