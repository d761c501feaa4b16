"""Messages to queues: a message goes into the log once, and its position to every queue that wants it.

It touches the log, the table of events and the ready positions of queues; who consumes them is not its business. A queue
that got something is marked, so that the end of the turn finds it.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from mqks.core.account cimport Work
from mqks.core.bounding cimport QueueLimits
from mqks.core.digest cimport Digest
from mqks.core.events cimport Binding, Events, look_up
from mqks.core.parts cimport Connection, Queue, refuses
from mqks.core.ready cimport Ready, push_ready, soil
from mqks.core.seen cimport Seen
from mqks.core.tail cimport Segment, Tail, commit, hold, room_for

cdef enum:
    LOOKING = 256               # the effort of a look at patterns


@cython.final
cdef class Router:
    def __init__(self, Work work, Tail log, Events events, Seen seen, Ready ready, QueueLimits limits, patterns):
        self.work = work
        self.log = log
        self.events = events
        self.seen = seen
        self.ready = ready
        self.limits = limits
        self.patterns = patterns

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
        if self.limits.limited:
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
        if self.limits.limited:
            for q in queues:
                if refuses(q, PyBytes_GET_SIZE(line)):
                    return q
        position = self.store(line, id, scope)
        self.published += 1
        for q in queues:
            put(self, self.ready, self.log.current, q, position)
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
        memcpy(room_for(self.log, size), PyBytes_AS_STRING(line), size)
        position = commit(self.log, size)
        if scope is not None:
            self.seen.add(digest, position, self.seen.now)
        return position

    cdef Queue full_one(self, Binding binding, char* event, char* after_event, char* end, size_t size):
        """The first of the queues that this message would go to that has no place for a line of this size; None: all have."""
        cdef Py_ssize_t i
        cdef Queue q
        if binding is not None:
            for i in range(PyList_GET_SIZE(binding.queues)):
                if refuses(<Queue>PyList_GET_ITEM(binding.queues, i), size):
                    return <Queue>PyList_GET_ITEM(binding.queues, i)
        for i in range(PyList_GET_SIZE(self.events.everything.queues)):
            if refuses(<Queue>PyList_GET_ITEM(self.events.everything.queues, i), size):
                return <Queue>PyList_GET_ITEM(self.events.everything.queues, i)
        if self.events.inspectors or (binding is not None and binding.inspectors):
            data = after_event + 1
            self.work.effort += LOOKING
            for q in self.patterns.wanting(event[:after_event - event], data[:end - data]):
                if refuses(q, size):
                    return q
        return None

    cdef int route(self, Binding binding, uint64_t position, char* event, char* after_event, char* end) except -1:
        """Put a message that is already in the log into its queues."""
        cdef Ready ready = self.ready       # once for all queues: an attribute that is passed on is counted each time
        cdef list everything = self.events.everything.queues
        cdef Segment* segment = self.log.current
        cdef Py_ssize_t i
        cdef Queue q
        self.published += 1
        if binding is not None:
            binding.published += 1
            for i in range(PyList_GET_SIZE(binding.queues)):
                put(self, ready, segment, <Queue>PyList_GET_ITEM(binding.queues, i), position)
        for i in range(PyList_GET_SIZE(everything)):
            put(self, ready, segment, <Queue>PyList_GET_ITEM(everything, i), position)
        if self.events.inspectors or (binding is not None and binding.inspectors):
            data = after_event + 1
            self.work.effort += LOOKING
            for q in self.patterns.inspect(event[:after_event - event], data[:end - data]):
                put(self, ready, segment, q, position)
        return 0

    cdef int put_replayed(self, Queue q, uint64_t position) except -1:
        """A line of the journal that comes back."""
        return put(self, self.ready, self.log.current, q, position)


cdef inline int put(Router router, Ready ready, Segment* segment, Queue q, uint64_t position) except -1:
    """The position of the line just committed, which this segment has, once, to a queue."""
    router.work.effort += 1
    if q.stamp == position:
        return 0
    push_ready(ready, q, position)
    hold(segment)
    q.stamp = position
    q.published += 1
    soil(ready, q)
    if q.limited:
        router.limits.came(q)
    return 0


cdef bytes flag(bytes scope):
    """--once, as it stands in the log."""
    if scope is None:
        return b""
    return b"--once=" + scope + b" " if scope else b"--once "
