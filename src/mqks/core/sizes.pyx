"""Bytes of the messages in queues whose bytes are limited.

A queue does not know the sizes of its messages, only where they are. Where its bytes are limited, the size of a message is looked up
in the log when it comes and again when it goes; mostly its line is in memory then. So what is counted is exact by construction: the
lines of the messages held, as the log has them, newline included. A message that the disk has lost has no size. What memory
lacks is read while all wait: so whoever lets many go stops when much was read, and goes on in another turn.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcpy

from mqks.core.account cimport Work
from mqks.core.parts cimport Queue
from mqks.core.tail cimport Segment, Tail, find

cdef enum:
    READING = 8192              # the effort to read a part of the log back


@cython.final
cdef class LineSizes:
    def __init__(self, Work work, Tail log, files):
        self.work = work
        self.log = log
        self.files = files

    cdef void came(self, Queue q) noexcept:
        """The line just committed was put into this queue."""
        if q.max_bytes:
            q.bytes += self.log.end - q.stamp

    cdef int goes(self, Queue q, uint64_t position) except -1:
        if q.bytes:
            q.bytes -= min(q.bytes, <uint64_t>self.size_at(position))
        return 0

    cdef size_t size_at(self, uint64_t position) except? 1:
        """Bytes of the line at this position, which must be held."""
        cdef Segment* segment = find(self.log, position)
        cdef char* line
        cdef char* end
        cdef bytes data
        if segment.data == NULL:
            self.read_back += segment.size
            self.work.effort += READING
            data = self.files.read_now(segment.start, segment.size)
            if data is None:
                return 0
            self.log.allot(segment, segment.size)
            memcpy(segment.data, PyBytes_AS_STRING(data), segment.size)
            self.log.evict()
        line = segment.data + (position - segment.start)
        end = <char*>memchr(line, 10, segment.data + segment.size - line)
        return 0 if line[0] == 0 or end == NULL else end + 1 - line
