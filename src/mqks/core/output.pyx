"""What the core says to its connections: replies and updates, into their out-buffers.

It touches the out-buffers of connections and nothing of queues. Large buffers are kept at rest, since a busy connection's buffer empties
and fills in every turn.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy

from mqks.core cimport buffer
from mqks.core.account cimport Account, Work, is_full
from mqks.core.memory cimport Memory, give_back, take
from mqks.core.parts cimport Connection, Consumer

cdef enum:
    SPARES = 8
    TELLING = 8                 # the effort of telling a consumer about its queue


@cython.final
cdef class Output:
    def __init__(self, Account account, Work work, updates, *, size_t max_line, size_t high_water):
        self.account = account
        self.memory = &account.memory
        self.work = work
        self.updates = updates
        self.max_line = max_line
        self.high_water = high_water
        self.most_spares = min(<size_t>SPARES, account.max_memory // (16 * LARGE))
        self.dirty_connections = []
        self.owed = {}
        self.spare = <char**>take(self.memory, SPARES * sizeof(char*))

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)       # the account may be gone already
        cdef int i
        for i in range(self.spares):
            give_back(&uncounted, self.spare[i], LARGE)
        give_back(&uncounted, self.spare, SPARES * sizeof(char*))

    cdef int attach(self, Connection c) except -1:
        c.high_water = self.high_water
        return 0

    cdef int detach(self, Connection c) except -1:
        """The connection is gone: it is told nothing more."""
        c.due = None
        self.owed.pop(c, None)
        self.drop_out(c)
        return 0

    cdef int mark_dirty(self, Connection c) except -1:
        """There is something to send to it."""
        if not c.dirty:
            c.dirty = True
            self.dirty_connections.append(c)
        return 0

    def say(self, Connection c, bytes line):
        """A reply, newline included."""
        self.write(c, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line))

    def expect(self, Connection c, int answers):
        """So many answers more (or fewer, below zero) are to come: one who sends no more is not closed before."""
        c.held += answers
        self.mark_dirty(c)

    def tell(self, Consumer consumer):
        """Say how things stand with its queue. One who does not read is told once, when it reads again."""
        cdef Connection c = consumer.connection
        cdef bint full = is_full(self.account)
        if full or choked(self, c):
            if c.due is None:
                c.due = {}
            c.due[consumer] = None
            if full:
                self.owed[c] = None
                self.account.squeezed = True
        elif not c.early_only:
            self.say(c, self.updates.update(consumer))

    cdef int tell_due(self, Connection c) except -1:
        """What its consumers were not told when there was no room."""
        cdef Consumer consumer
        if c.due:
            due = c.due
            c.due = None
            self.work.effort += TELLING * len(due)
            for consumer in due:
                if not consumer.gone or consumer.dismissed:
                    self.tell(consumer)
        return 0

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
        return <char*>take(self.memory, LARGE)

    cdef void drop_out(self, Connection c) noexcept:
        c.large = c.out.tail > LARGE // 8       # by what was in it, not by what it was
        c.replies = 0
        if c.out.capacity == LARGE and self.spares < self.most_spares:
            self.spare[self.spares] = c.out.data
            self.spares += 1
            c.out = buffer.Buffer(NULL, 0, 0, 0)
        else:
            buffer.release(&c.out, self.memory)
