"""What is ready in queues: positions of messages that nobody has yet, and which queues may have something to deliver.

Where there is a journal, full chunks in the middle of a long queue go to disk, and come back before they are needed.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from mqks.core cimport fifo
from mqks.core.account cimport Account
from mqks.core.memory cimport give_back, take
from mqks.core.parts cimport Queue


@cython.final
cdef class Ready:
    def __init__(self, Account account, files):
        self.account = account
        self.memory = &account.memory
        self.files = files
        self.dirty_queues = []

    def suspend(self, Queue q):
        """Deliver nothing from this queue until there has been a `go_on` for each `suspend`."""
        q.suspended += 1

    def go_on(self, Queue q):
        q.suspended -= 1
        soil(self, q)

    cdef int spill(self, fifo.Chunk* full) except -1:
        """This chunk of a long queue goes to disk, if there is room."""
        full.where = self.files.spill((<char*>full.items)[:full.tail * sizeof(uint64_t)])
        if full.where == 0:
            return 0
        give_back(self.memory, full.items, full.size)
        full.items = NULL
        full.size = 0
        return 0

    cdef bint bring_back(self, Queue q) except -1:
        """The first chunk of the queue is on disk: read it. False: it cannot be read, and the owner of the files knows."""
        cdef fifo.Chunk* first = q.ready.first
        cdef bytes data = self.files.bring_back(first.where, first.tail)
        if data is None:
            return False
        first.items = <uint64_t*>take(self.memory, first.tail * sizeof(uint64_t))
        first.size = first.tail * sizeof(uint64_t)
        memcpy(first.items, PyBytes_AS_STRING(data), first.size)
        return True
