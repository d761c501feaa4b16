"""What messages pass through: connections, consumers and queues, as the core sees them.

They hold state and free what they own; what happens to them is decided in the parts of the core (hub.pyx),
which alone change them. The broker's own classes for clients and queues are made from these.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport INT64_MAX, uint64_t
from libc.string cimport memcpy, memset

from mqks.core cimport buffer, fifo, heap, unsettled
from mqks.core.memory cimport Memory, give_back, take
from mqks.core.unsettled cimport NONE

cdef enum:
    GAPS = 16                   # places of consumers that left, beside as many as there are consumers


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
        self.place = -1

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)
        unsettled.free_ring(&self.ring, &uncounted)

    @property
    def unacked(self):
        return self.ring.live if self.manual_ack else 0


@cython.final
cdef class Consumers:
    """The consumers of one queue. They take turns in the order in which they joined.

    Joining and leaving take constant time: one that leaves leaves a gap, and gaps are closed when they prevail. A bit for
    each place says whether its consumer may have room, so that those without room are not looked at for each message: the
    bit is cleared when one is found to have none, and set by all that can give it room (`may_take`)."""

    def __cinit__(self):
        self.places = []
        self.candidates = &self.few
        self.words = 1

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)
        if self.candidates != &self.few:
            give_back(&uncounted, self.candidates, self.words * sizeof(uint64_t))

    def __len__(self):
        return self.count

    def __iter__(self):
        for consumer in self.places:
            if consumer is not None:
                yield consumer

    cdef int add(self, Consumer c, Memory* memory) except -1:
        cdef Py_ssize_t place = PyList_GET_SIZE(self.places)
        if place >> 6 == self.words:
            self.set_words(2 * self.words, memory)
        self.places.append(c)
        self.count += 1
        c.place = place
        set_candidate(self, place)
        return 0

    cdef int remove(self, Consumer c, Memory* memory) except -1:
        self.places[c.place] = None
        clear_candidate(self, c.place)
        c.place = -1
        self.count -= 1
        if PyList_GET_SIZE(self.places) > 2 * self.count + GAPS:
            self.close_gaps(memory)
        return 0

    cdef int close_gaps(self, Memory* memory) except -1:
        cdef list places = self.places
        cdef Py_ssize_t turn = 0
        cdef Py_ssize_t i
        cdef Consumer c
        self.set_words((self.count >> 6) + 1, memory)
        self.places = []
        for i in range(PyList_GET_SIZE(places)):
            if i == self.turn:
                turn = PyList_GET_SIZE(self.places)
            c = <Consumer>PyList_GET_ITEM(places, i)
            if c is not None:
                c.place = PyList_GET_SIZE(self.places)
                self.places.append(c)
                set_candidate(self, c.place)
        self.turn = turn if self.turn < PyList_GET_SIZE(places) else PyList_GET_SIZE(self.places)
        return 0

    cdef int set_words(self, Py_ssize_t words, Memory* memory) except -1:
        """More words for candidates, with those that there are; or fewer, and no candidates."""
        cdef uint64_t* fresh = &self.few
        cdef Py_ssize_t kept = self.words if words > self.words else 0
        if words > 1:
            fresh = <uint64_t*>take(memory, words * sizeof(uint64_t))
        memcpy(fresh, self.candidates, kept * sizeof(uint64_t))
        memset(fresh + kept, 0, (words - kept) * sizeof(uint64_t))
        if self.candidates != &self.few:
            give_back(memory, self.candidates, self.words * sizeof(uint64_t))
        self.candidates = fresh
        self.words = words
        return 0


cdef class Queue:
    def __cinit__(self):
        self.consumers = Consumers()
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
