"""What the core says to its connections: replies and updates, into their out-buffers. The lowest layer of the core.

It has what all layers share: the counted memory, the limits and the handler. It touches the out-buffers of connections and
nothing of queues. Large buffers are kept at rest, since a busy connection's buffer empties and fills in every turn.

Where there is a journal, a reply on which a client may rely is held until the disk has what it is about: until it is synced, or
only written, as the journal says. Held replies keep their order.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.string cimport memcpy

from mqks.core cimport buffer
from mqks.core.memory cimport Memory, give_back, take
from mqks.core.parts cimport Connection, Consumer

cdef enum:
    SPARES = 8


@cython.final
@cython.freelist(64)
cdef class Held:
    pass


cdef class Output:
    def __init__(self, handler, *, size_t max_line, size_t max_memory, size_t high_water):
        self.handler = handler
        self.max_line = max_line
        self.max_memory = max_memory
        self.ceiling = max_memory + MARGIN
        self.high_water = high_water
        self.most_spares = min(<size_t>SPARES, max_memory // (16 * LARGE))
        self.dirty_connections = []
        self.owed = {}
        self.held = []
        self.spare = <char**>take(&self.memory, SPARES * sizeof(char*))

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)
        cdef int i
        for i in range(self.spares):
            give_back(&uncounted, self.spare[i], LARGE)
        give_back(&uncounted, self.spare, SPARES * sizeof(char*))
        buffer.release(&self.held_text, &uncounted)

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

    def confirm(self, Connection c, bytes request_id, Consumer consumer=None, bint settled=False):
        """The answer to a request that is done: it made this consumer, or settled something, or did what the journal has."""
        if self.holds and settled and not c.gone:
            self.held_settled = True
            self.hold_reply(c, consumer, PyBytes_AS_STRING(request_id), PyBytes_GET_SIZE(request_id))
        elif self.holds and consumer is not None and (self.held or self.unsafe()):
            self.hold_reply(c, consumer, PyBytes_AS_STRING(request_id), PyBytes_GET_SIZE(request_id))
        else:
            self.confirm_id(c, PyBytes_AS_STRING(request_id), PyBytes_GET_SIZE(request_id))

    cdef int confirm_id(self, Connection c, const char* id, size_t size) except -1:
        """All that a client may rely on goes through here."""
        cdef char* to
        if c.gone:
            return 0
        if self.holds and (self.held or self.unsafe()):
            return self.hold_reply(c, None, id, size)
        to = out_room(self, c, size + 5)
        memcpy(to, id, size)
        memcpy(to + size, b" ok \n", 5)
        c.out.tail += size + 5
        c.replies += size + 5
        return 0

    # ── replies that wait for the disk ──

    cdef bint unsafe(self) noexcept:
        """Is there anything that the disk may lose?"""
        return self.safe != self.writes

    cdef int hold_reply(self, Connection c, Consumer consumer, const char* id, size_t size) except -1:
        cdef Py_ssize_t count = PyList_GET_SIZE(self.held)
        cdef Held last = <Held>PyList_GET_ITEM(self.held, count - 1) if count else None
        cdef char* to = buffer.reserve(&self.held_text, &self.memory, size + 5)
        memcpy(to, id, size)
        memcpy(to + size, b" ok \n", 5)
        self.held_text.tail += size + 5
        if last is None or last.connection is not c or last.write != self.writes or last.consumer is not None:
            last = Held.__new__(Held)
            last.connection = c
            last.write = self.writes
            self.held.append(last)
            self.memory.used += HELD_COST
            c.held += 1
        last.size += size + 5
        c.held_bytes += size + 5
        if consumer is not None:
            last.consumer = consumer
            consumer.unconfirmed = True
        self.held_new = True
        return 0

    def expect(self, Connection c, int answers):
        """So many answers more (or fewer, below zero) are to come: one who sends no more is not closed before."""
        c.held += answers
        if not c.dirty:
            c.dirty = True
            self.dirty_connections.append(c)

    @property
    def waits_for_disk(self):
        """Does a reply wait?"""
        return PyList_GET_SIZE(self.held) > 0

    @property
    def settled_waits(self):
        """Does a reply wait for what was settled and is written, and not only for what was published or bound?"""
        return self.settled_written

    @property
    def written(self):
        """How many times the journal was written."""
        return self.writes

    def settled_is_taken(self):
        """A sync has begun that includes what was settled."""
        self.settled_written = False

    def release(self, uint64_t writes):
        """So many of the writes are safe now: say what waited for them. Answers the consumers that may now have messages."""
        cdef list consumers = []
        cdef Py_ssize_t done = 0
        cdef Held next
        self.safe = max(self.safe, writes)
        for next in self.held:
            if next.write >= writes:
                break
            done += 1
            next.connection.held -= 1
            next.connection.held_bytes -= next.size
            self.write(next.connection, self.held_text.data + self.held_text.head, next.size)
            self.held_text.head += next.size
            if next.consumer is not None:
                next.consumer.unconfirmed = False
                consumers.append(next.consumer)
        del self.held[:done]
        self.memory.used -= done * HELD_COST
        if self.held_text.head == self.held_text.tail:
            buffer.release(&self.held_text, &self.memory)
        return consumers

    def drop_held(self):
        """Forget all that waits, since nobody knows what the disk has of it. Answers the connections, as keys, and how many replies
        each will not get."""
        cdef dict dropped = {}
        cdef bytes text
        cdef Held next
        for next in self.held:
            next.connection.held -= 1
            next.connection.held_bytes -= next.size
            text = PyBytes_FromStringAndSize(self.held_text.data + self.held_text.head, next.size)
            self.held_text.head += next.size
            dropped[next.connection] = dropped.get(next.connection, 0) + text.count(b"\n")
        self.memory.used -= PyList_GET_SIZE(self.held) * HELD_COST
        self.held = []
        buffer.release(&self.held_text, &self.memory)
        return dropped

    def tell(self, Consumer consumer):
        """Say how things stand with its queue. One who does not read is told once, when it reads again."""
        cdef Connection c = consumer.connection
        cdef bint full = self.memory.used >= self.max_memory
        if full or choked(self, c):
            if c.due is None:
                c.due = {}
            c.due[consumer] = None
            if full:
                self.owed[c] = None
                self.squeezed = True
        elif not c.early_only:
            self.say(c, self.handler.update(consumer))

    cdef int write(self, Connection c, const char* text, size_t size) except -1:
        if not c.gone:
            memcpy(out_room(self, c, size), text, size)
            c.out.tail += size
            c.replies += size
        return 0

    cdef char* large_block(self) except NULL:
        if self.spares:
            self.spares -= 1
            return self.spare[self.spares]
        return <char*>take(&self.memory, LARGE)

    cdef void drop_out(self, Connection c) noexcept:
        c.large = c.out.tail > LARGE // 8       # by what was in it, not by what it was
        c.replies = 0
        if c.out.capacity == LARGE and self.spares < self.most_spares:
            self.spare[self.spares] = c.out.data
            self.spares += 1
            c.out = buffer.Buffer(NULL, 0, 0, 0)
        else:
            buffer.release(&c.out, &self.memory)
