"""Messages to queues: a message goes into the log once, and its position to every queue that wants it.

It touches the log, the table of events and the ready positions of queues; who consumes them is not its business. A queue
that got something is marked, so that the end of the turn finds it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport SIZE_MAX, uint64_t
from libc.string cimport memchr, memcpy

from mqks.core cimport fifo
from mqks.core.digest cimport Digest
from mqks.core.memory cimport give_back, take
from mqks.core.events cimport Binding, Events, look_up
from mqks.core.output cimport Output
from mqks.core.parts cimport Connection, Queue, refuses
from mqks.core.seen cimport Seen
from mqks.core.tail cimport Segment, Tail, commit, room_for

cdef enum:
    LOOKING = 256               # the effort of a look at patterns


cdef class Router(Output):
    def __init__(self, handler, *, uint64_t seed, **limits):
        Output.__init__(self, handler, **limits)
        self.seed = seed
        self.tail = Tail()
        self.tail.open(&self.memory)
        self.events = Events(seed)
        self.seen = Seen()
        self.seen.borrow(&self.memory)
        self.everything = Binding(b"")
        self.dirty_queues = []

    @property
    def position(self):
        """The position of the next message."""
        return self.tail.end

    @property
    def held(self):
        """Bytes of the messages that are still held."""
        return self.tail.held

    def publish(self, Connection c, bytes id, bytes event, bytes data, bytes scope=None):
        """Take an MQKS message; one to be taken once has a scope. Answers a queue that is full: then nothing was taken."""
        cdef bytes head = id + b" publish " + flag(scope)
        cdef bytes line = head + event + b" " + data + b"\n"
        cdef char* at = PyBytes_AS_STRING(line) + PyBytes_GET_SIZE(head)
        cdef char* after_event = at + PyBytes_GET_SIZE(event)
        cdef char* end = PyBytes_AS_STRING(line) + PyBytes_GET_SIZE(line) - 1
        cdef void* found = look_up(self.events, PyBytes_AS_STRING(event), PyBytes_GET_SIZE(event))
        cdef Binding binding = None if found == NULL else <Binding>found
        cdef Queue full = None
        c.publishes = True
        if self.limited:
            full = self.full_one(binding, at, after_event, end, PyBytes_GET_SIZE(line))
        if full is None:
            self.route(binding, self.store(line, id, scope), at, after_event, end)
        return full

    def send(self, Connection c, bytes id, bytes json, queues, bytes scope=None):
        """Take a SEVX event for these queues; likewise."""
        cdef bytes line = id + b" send " + flag(scope) + json + b"\n"
        cdef uint64_t position
        cdef Queue q
        c.publishes = True
        if self.limited:
            for q in queues:
                if refuses(q, PyBytes_GET_SIZE(line)):
                    return q
        position = self.store(line, id, scope)
        self.published += 1
        for q in queues:
            put(self, q, position)
        return None

    def record(self, bytes line):
        """A line of the journal's own, newline included; answers its position."""
        return self.store(line, None, None)

    cdef uint64_t store(self, bytes line, bytes id, bytes scope) except? 1:
        """A line into the log. With a scope the id is remembered: the caller has found that it is not known."""
        cdef size_t size = PyBytes_GET_SIZE(line)
        cdef uint64_t position
        cdef Digest digest
        if scope is not None:
            digest = self.seen.digest(
                PyBytes_AS_STRING(scope), PyBytes_GET_SIZE(scope), PyBytes_AS_STRING(id), PyBytes_GET_SIZE(id)
            )
            self.seen.make_room()
        memcpy(room_for(self.tail, size), PyBytes_AS_STRING(line), size)
        position = commit(self.tail, size)
        if scope is not None:
            self.seen.add(digest, position, self.seen.now)
        return position

    cdef int came(self, Queue q) except -1:
        """The line just committed was put into a queue with limits: see bounding.pyx."""
        return 0

    cdef int goes(self, Queue q, uint64_t position) except -1:
        """A queue with limits lets a message go: likewise."""
        return 0

    cdef Queue full_one(self, Binding binding, char* event, char* after_event, char* end, size_t size):
        """The first of the queues that this message would go to that has no place for a line of this size; None: all have."""
        cdef Py_ssize_t i
        cdef Queue q
        if binding is not None:
            for i in range(PyList_GET_SIZE(binding.queues)):
                if refuses(<Queue>PyList_GET_ITEM(binding.queues, i), size):
                    return <Queue>PyList_GET_ITEM(binding.queues, i)
        for i in range(PyList_GET_SIZE(self.everything.queues)):
            if refuses(<Queue>PyList_GET_ITEM(self.everything.queues, i), size):
                return <Queue>PyList_GET_ITEM(self.everything.queues, i)
        if self.inspectors or (binding is not None and binding.inspectors):
            data = after_event + 1
            self.effort += LOOKING
            for q in self.handler.wanting(event[:after_event - event], data[:end - data]):
                if refuses(q, size):
                    return q
        return None

    cdef int route(self, Binding binding, uint64_t position, char* event, char* after_event, char* end) except -1:
        """Put a message that is already in the log into its queues."""
        cdef Py_ssize_t i
        cdef Queue q
        self.published += 1
        if binding is not None:
            binding.published += 1
            for i in range(PyList_GET_SIZE(binding.queues)):
                put(self, <Queue>PyList_GET_ITEM(binding.queues, i), position)
        for i in range(PyList_GET_SIZE(self.everything.queues)):
            put(self, <Queue>PyList_GET_ITEM(self.everything.queues, i), position)
        if self.inspectors or (binding is not None and binding.inspectors):
            data = after_event + 1
            self.effort += LOOKING
            for q in self.handler.inspect(event[:after_event - event], data[:end - data]):
                put(self, q, position)
        return 0

    def line_near(self, uint64_t position):
        """A position at or before this one where a line begins, if the log has it in memory."""
        cdef size_t at
        for at in range(self.tail.first, self.tail.last):
            if position - self.tail.segments[at].start < self.tail.segments[at].size:
                return self.tail.segments[at].start
        return position

    def held_lines(self, uint64_t position):
        """Lines in memory at this position or after it, as far as they follow each other: where they begin, and their text."""
        cdef Segment* segment
        cdef size_t offset
        cdef size_t at
        for at in range(self.tail.first, self.tail.last):
            segment = self.tail.segments[at]
            if segment.data != NULL and segment.start + segment.size > position:
                offset = position - segment.start if position > segment.start else 0
                return segment.start + offset, segment.data[offset:segment.size]
        return None

    def line_at(self, uint64_t position, size_t most=SIZE_MAX):
        """The line that begins here, at most so much of it, and its whole size without newline; if the log has it in memory."""
        cdef Segment* segment
        cdef char* line
        cdef char* end
        if self.tail.first == self.tail.last:
            return None
        segment = self.tail.segments[self.tail.index(position)]
        if segment.data == NULL or position < segment.start or position - segment.start >= segment.size:
            return None
        line = segment.data + (position - segment.start)
        end = <char*>memchr(line, 10, segment.data + segment.size - line)
        if end == NULL or line[0] == 0 or (line != segment.data and (line - 1)[0] != 10):
            return None
        return line[:min(<size_t>(end - line), most)], end - line

    cdef bint unsafe(self) noexcept:
        return self.tail.end != self.tail.written or self.safe != self.writes

    # ── long queues ──

    cdef int spill(self, Queue q, fifo.Chunk* full) except -1:
        """This chunk of a long queue goes to disk, if there is room."""
        full.where = self.handler.spill((<char*>full.items)[:full.tail * sizeof(uint64_t)])
        if full.where == 0:
            return 0
        give_back(&self.memory, full.items, full.size)
        full.items = NULL
        full.size = 0
        return 0

    cdef bint bring_back(self, Queue q) except -1:
        """The first chunk of the queue is on disk: read it. False: it cannot be read, and the handler knows."""
        cdef fifo.Chunk* first = q.ready.first
        cdef bytes data = self.handler.bring_back(first.where, first.tail)
        if data is None:
            return False
        first.items = <uint64_t*>take(&self.memory, first.tail * sizeof(uint64_t))
        first.size = first.tail * sizeof(uint64_t)
        memcpy(first.items, PyBytes_AS_STRING(data), first.size)
        return True

    def take_everything(self, Queue q, bint yes):
        """A queue that wants every MQKS message, or no longer does."""
        if yes:
            self.everything.add(q)
        else:
            self.everything.remove(q)

    def inspect_everything(self, int change):
        """Add to the number of patterns that look into the data of every MQKS message."""
        self.inspectors += change


cdef bytes flag(bytes scope):
    """--once, as it stands in the log."""
    if scope is None:
        return b""
    return b"--once=" + scope + b" " if scope else b"--once "
