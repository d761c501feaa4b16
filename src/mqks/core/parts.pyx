"""What messages pass through: connections, consumers and queues, as the core sees them.

They hold state and free what they own; what happens to them is decided in the layers above (output, routing, settling, delivery,
hub), which alone change them. The broker's own classes for clients and queues are made from these.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX

from mqks.core cimport buffer, fifo, heap, unsettled
from mqks.core.memory cimport Memory
from mqks.core.unsettled cimport NONE


cdef class Connection:
    def __cinit__(self):
        self.fd = -1
        self.budget = INT64_MAX
        self.early_only = True

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)       # the core that counted may be gone already
        buffer.release(&self.partial, &uncounted)
        buffer.release(&self.unread, &uncounted)
        buffer.release(&self.out, &uncounted)

    @property
    def unfinished(self):
        """Bytes of a line whose end has not come."""
        return self.partial.tail

    @property
    def unheard(self):
        """Bytes that came and wait to be taken."""
        return self.unread.tail - self.unread.head

    @property
    def pending_size(self):
        return waiting(self)

    def pending(self):
        """All that waits to be sent."""
        return PyBytes_FromStringAndSize(self.out.data + self.out.head, waiting(self)) if waiting(self) else b""


@cython.final
cdef class Consumer:
    def __init__(self, bytes id, Connection connection, Queue queue):
        self.id = id
        self.connection = connection
        self.queue = queue
        self.prefix = id + b" ok "
        self.stated = ()

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)
        unsettled.free_ring(&self.ring, &uncounted)

    @property
    def unacked(self):
        return self.ring.live if self.manual_ack else 0


cdef class Queue:
    def __cinit__(self):
        self.consumers = []
        self.retries = {}
        self.stamp = NONE

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)
        fifo.clear(&self.ready, &uncounted)
        heap.heap_clear(&self.returned, &uncounted)
        buffer.release(&self.progress, &uncounted)

    @property
    def ready_count(self):
        return self.ready.count + self.returned.count

    @property
    def returned_count(self):
        return self.returned.count

    @property
    def length(self):
        """Messages that are ready or not settled."""
        return length(self)

    def calm(self):
        """Look anew at how often a message is retried."""
        self.retrying = 0
