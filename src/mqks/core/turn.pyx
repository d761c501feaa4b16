"""A turn of the broker: the one order in which things happen, whoever moves the bytes.

    1. input that waited is taken, as far as there is time
    2. what clients have sent is read
    3. what came is written to the journal, before anything is sent: what a client sees, a crash does not undo
    4. those who had no room get what waited for them
    5. queues are served and output is sent, in rounds, while clients take it and queues have more
    6. what became of the messages that were sent is written
    7. Python goes on with histories and with what it does in slices, if it has something to do

Bytes are moved through `Transport`: by the poller's sockets (sockets.pyx), or in process (`LocalTransport`), for the simulator and
tests.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport uint64_t

from mqks.core.account cimport Account, Work
from mqks.core.deferred cimport DeferredInput
from mqks.core.delivery cimport Delivery, has_more_to_deliver
from mqks.core.hub cimport Core
from mqks.core.keeping cimport Persistence, write_out
from mqks.core.output cimport Output
from mqks.core.parsing cimport Parser
from mqks.core.parts cimport Connection, Queue, last_served, waiting
from mqks.core.ready cimport Ready
from mqks.core.tail cimport Tail

cdef enum:
    MUCH = 64 * 1024            # is sent before the others get theirs
    ROUNDS = 8                  # of deliver and send in one turn, while clients take all and queues have more
    FULL = 1                    # Connection.interest of a client in process that did not take all


cdef class Transport:
    cdef double now(self) noexcept:
        """Seconds on a clock of its own, by which a turn is kept short."""
        return 0.0

    cdef int begin(self) except -1:
        """A turn begins."""
        raise NotImplementedError

    cdef int resume_input(self, Connection c) except -1:
        """Take what waited of this connection, its share of a turn, and read it again if all is taken."""
        raise NotImplementedError

    cdef int read(self) except -1:
        """Take what clients have sent, of each its share."""
        raise NotImplementedError

    cdef int write(self) except -1:
        """Send to those who had no room and have some now."""
        raise NotImplementedError

    cdef bint can_send(self, Connection c) noexcept:
        """False: it is gone, or waits for room: `write` has it then."""
        return False

    cdef int flush(self, Connection c) except -1:
        """Send what waits, as far as the client takes it."""
        raise NotImplementedError

    cdef bint end(self) except -1:
        """The turn ends, but for Python's part. Is it Python's turn, whatever the broker has for it?"""
        raise NotImplementedError


@cython.final
cdef class Turn:
    def __init__(self, Core core, pump):
        self.account = core.account
        self.work = core.work
        self.log = core.log
        self.ready = core.ready
        self.output = core.output
        self.persistence = core.persistence
        self.deferred = core.deferred
        self.delivery = core.delivery
        self.parser = core.parser
        self.pump = pump

    def run(self, Transport transport not None):
        self.take(transport)

    cdef bint has_more(self) noexcept:
        """Is there something to do, though no client says anything?"""
        cdef size_t used = self.account.memory.used
        cdef bint stalled = self.persistence.stalled
        if PyList_GET_SIZE(self.output.dirty_connections) > 0 or self.deferred.can_resume:
            return True
        if not stalled and has_more_to_deliver(self.delivery):
            return True
        if self.log.end != self.log.written and self.log.journaled and not self.log.refusing:
            return True
        # Can those go on in a round that lacked memory in the last one? What was sent after it may have freed some. The next round
        # goes on with all of them, and only lack of memory makes them wait again: so this does not spin.
        if self.account.squeezed and used < self.account.max_memory:
            return True
        return not stalled and used < self.account.ceiling and len(self.delivery.unserved) > 0

    cdef bint take(self, Transport transport) except -1:
        """Answers whether Python had its part."""
        cdef uint64_t calls = self.parser.requests + self.delivery.rooms
        cdef bint is_pythons
        cdef int i
        transport.begin()
        if self.deferred.can_resume:
            self.resume_deferred(transport)
        transport.read()
        write_out(self.persistence)
        transport.write()
        self.delivery.begin_turn()
        for i in range(ROUNDS):
            self.deliver_round(transport)
            self.flush_dirty(transport)
            if not self.ready.dirty_queues or self.work.effort >= self.delivery.quota:
                break
        write_out(self.persistence)
        is_pythons = transport.end() or self.parser.requests + self.delivery.rooms != calls
        if is_pythons:
            self.pump()
        return is_pythons

    cdef int resume_deferred(self, Transport transport) except -1:
        """Whoever is not reached in time is the first in the next turn."""
        cdef double end = transport.now() + transport.patience
        cdef list waited = self.deferred.resumable()
        cdef Py_ssize_t i
        for i in range(PyList_GET_SIZE(waited)):
            if i and transport.now() >= end:
                return self.deferred.postpone(waited[i:])
            transport.resume_input(<Connection>PyList_GET_ITEM(waited, i))
        return 0

    cdef int deliver_round(self, Transport transport) except -1:
        """A connection that got much from one queue is sent it at once: while it is in the cache, and so that the next one can have
        its buffer."""
        cdef Queue q
        cdef Connection c
        if not self.delivery.begin_round():
            return 0
        while self.work.effort < self.delivery.quota:
            q = self.delivery.serve_next()
            if q is None:
                return 0
            if q.consumers.count == 1 and last_served(q.consumers) is not None:
                c = last_served(q.consumers).connection
                if waiting(c) >= MUCH and transport.can_send(c):
                    transport.flush(c)
        return 0

    cdef int flush_dirty(self, Transport transport) except -1:
        cdef list dirty = self.output.dirty_connections
        cdef Py_ssize_t i
        cdef Connection c
        if not dirty:
            return 0
        self.output.dirty_connections = []
        for i in range(PyList_GET_SIZE(dirty)):
            c = <Connection>PyList_GET_ITEM(dirty, i)
            c.dirty = False
            if transport.can_send(c):
                transport.flush(c)
        return 0


@cython.final
cdef class LocalTransport(Transport):
    """Clients in this process. Time does not pass: a turn takes all."""

    def __init__(self, Core core):
        self.parser = core.parser
        self.delivery = core.delivery
        self.patience = 1.0

    cdef int begin(self) except -1:
        return 0

    cdef int resume_input(self, Connection c) except -1:
        self.parser.begin_share()
        return self.parser.resume(c)

    cdef int read(self) except -1:
        cdef Connection c
        cdef bytes data
        if self.links is not None:
            for c, data in self.links.input():
                self.parser.begin_share()
                self.parser.take_bytes(c, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
                self.parser.end_share()
        return 0

    cdef int write(self) except -1:
        cdef Connection c
        if self.links is not None:
            for c in self.links.writable():
                self.flush(c)
        return 0

    cdef bint can_send(self, Connection c) noexcept:
        return not c.gone and c.interest != FULL and self.links is not None

    cdef int flush(self, Connection c) except -1:
        cdef size_t size
        c.interest = 0
        if waiting(c):
            size = self.links.send(c)
            if size < waiting(c):
                c.interest = FULL
            if size:
                self.delivery.took(c, size)
        return 0

    cdef bint end(self) except -1:
        return True
