"""Replies on which a client may rely. Where there is a journal, each is held until the disk has what it is about.

That is until it is synced, or only written, as the journal says. Held replies keep their order. Without a journal they go out at once.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from mqks.core cimport buffer
from mqks.core.account cimport Account
from mqks.core.memory cimport Memory
from mqks.core.output cimport Output, out_room
from mqks.core.parts cimport Connection, Consumer
from mqks.core.ready cimport Ready, may_take
from mqks.core.tail cimport Tail


@cython.final
@cython.freelist(64)
cdef class Held:
    pass


@cython.final
cdef class Confirmations:
    def __init__(self, Account account, Tail log, Output output, Ready ready):
        self.account = account
        self.memory = &account.memory
        self.log = log
        self.output = output
        self.ready = ready
        self.held = []

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)
        buffer.release(&self.text, &uncounted)

    def confirm(self, Connection c, bytes request_id, Consumer consumer=None, bint settled=False):
        """The answer to a request that is done: it made this consumer, or settled something, or did what the journal has."""
        if self.log.journaled and settled and not c.gone:
            self.settled = True
            self.hold(c, consumer, PyBytes_AS_STRING(request_id), PyBytes_GET_SIZE(request_id))
        elif consumer is not None and self.must_wait():
            self.hold(c, consumer, PyBytes_AS_STRING(request_id), PyBytes_GET_SIZE(request_id))
        else:
            self.confirm_id(c, PyBytes_AS_STRING(request_id), PyBytes_GET_SIZE(request_id))

    cdef int confirm_id(self, Connection c, const char* id, size_t size) except -1:
        """All that a client may rely on goes through here."""
        cdef char* to
        if c.gone:
            return 0
        if self.must_wait():
            return self.hold(c, None, id, size)
        to = out_room(self.output, c, size + 5)
        memcpy(to, id, size)
        memcpy(to + size, b" ok \n", 5)
        c.out.tail += size + 5
        c.replies += size + 5
        return 0

    cdef bint must_wait(self) noexcept:
        """Is there anything that the disk may lose, or a reply that goes before the next one?"""
        return self.log.journaled and (
            PyList_GET_SIZE(self.held) > 0 or self.log.end != self.log.written or self.safe != self.writes
        )

    cdef int hold(self, Connection c, Consumer consumer, const char* id, size_t size) except -1:
        cdef Py_ssize_t count = PyList_GET_SIZE(self.held)
        cdef Held last = <Held>PyList_GET_ITEM(self.held, count - 1) if count else None
        cdef char* to = buffer.reserve(&self.text, self.memory, size + 5)
        memcpy(to, id, size)
        memcpy(to + size, b" ok \n", 5)
        self.text.tail += size + 5
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
        self.new = True
        return 0

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

    def release_replies(self, uint64_t writes):
        """So many of the writes are safe now: say what waited for them."""
        cdef Py_ssize_t done = 0
        cdef Held next
        self.safe = max(self.safe, writes)
        for next in self.held:
            if next.write >= writes:
                break
            done += 1
            next.connection.held -= 1
            next.connection.held_bytes -= next.size
            self.output.write(next.connection, self.text.data + self.text.head, next.size)
            self.text.head += next.size
            if next.consumer is not None:
                next.consumer.unconfirmed = False
                may_take(self.ready, next.consumer)
        del self.held[:done]
        self.memory.used -= done * HELD_COST
        if self.text.head == self.text.tail:
            buffer.release(&self.text, self.memory)

    def drop_held(self):
        """Forget all that waits, since nobody knows what the disk has of it. Answers the connections, as keys, and how many replies
        each will not get."""
        cdef dict dropped = {}
        cdef bytes text
        cdef Held next
        for next in self.held:
            next.connection.held -= 1
            next.connection.held_bytes -= next.size
            text = PyBytes_FromStringAndSize(self.text.data + self.text.head, next.size)
            self.text.head += next.size
            dropped[next.connection] = dropped.get(next.connection, 0) + text.count(b"\n")
        self.memory.used -= PyList_GET_SIZE(self.held) * HELD_COST
        self.held = []
        buffer.release(&self.text, self.memory)
        return dropped
