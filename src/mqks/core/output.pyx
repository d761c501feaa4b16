"""What the core says to its connections: replies and updates, into their out-buffers. The lowest layer of the core.

It has what all layers share: the counted memory, the limits and the handler. It touches the out-buffers of connections and
nothing of queues. Large buffers are kept at rest, since a busy connection's buffer empties and fills in every turn.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy

from mqks.core cimport buffer
from mqks.core.memory cimport Memory, give_back, take
from mqks.core.parts cimport Connection, Consumer

cdef enum:
    SPARES = 8


cdef class Output:
    def __init__(self, handler, *, size_t max_line, size_t max_memory, size_t high_water):
        self.handler = handler
        self.max_line = max_line
        self.max_memory = max_memory
        self.high_water = high_water
        self.dirty_connections = []
        self.spare = <char**>take(&self.memory, SPARES * sizeof(char*))

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)
        cdef int i
        for i in range(self.spares):
            give_back(&uncounted, self.spare[i], LARGE)
        give_back(&uncounted, self.spare, SPARES * sizeof(char*))

    @property
    def used(self):
        """Bytes of memory taken for messages, queues and buffers."""
        return self.memory.used

    @property
    def full(self):
        return self.memory.used >= self.max_memory

    def charge(self, Py_ssize_t size):
        """Count memory that was taken (or, below zero, given back) elsewhere: for names, subscriptions and the like."""
        self.memory.used += size

    def attach(self, Connection c, int fd=-1):
        c.high_water = self.high_water
        c.fd = fd

    def say(self, Connection c, bytes line):
        """A reply, newline included."""
        self.write(c, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line))

    def confirm(self, Connection c, bytes request_id):
        """The answer to a request that is done."""
        self.confirm_id(c, PyBytes_AS_STRING(request_id), PyBytes_GET_SIZE(request_id))

    cdef int confirm_id(self, Connection c, const char* id, size_t size) except -1:
        """All that a client may rely on goes through here."""
        cdef char* to
        if not c.gone:
            to = out_room(self, c, size + 5)
            memcpy(to, id, size)
            memcpy(to + size, b" ok \n", 5)
            c.out.tail += size + 5
        return 0

    def tell(self, Consumer consumer):
        """Say how things stand with its queue. One who does not read is told once, when it reads again."""
        cdef Connection c = consumer.connection
        if choked(self, c) or self.memory.used >= self.max_memory:
            if c.due is None:
                c.due = {}
            c.due[consumer] = None
        else:
            self.say(c, self.handler.update(consumer))

    cdef int write(self, Connection c, const char* text, size_t size) except -1:
        if not c.gone:
            memcpy(out_room(self, c, size), text, size)
            c.out.tail += size
        return 0

    cdef char* large_block(self) except NULL:
        if self.spares:
            self.spares -= 1
            return self.spare[self.spares]
        return <char*>take(&self.memory, LARGE)

    cdef void drop_out(self, Connection c) noexcept:
        c.large = c.out.tail > LARGE // 8       # by what was in it, not by what it was
        if c.out.capacity == LARGE and self.spares < SPARES:
            self.spare[self.spares] = c.out.data
            self.spares += 1
            c.out = buffer.Buffer(NULL, 0, 0, 0)
        else:
            buffer.release(&c.out, &self.memory)
