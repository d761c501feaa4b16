"""The tail of the log in memory: see tail.pyx. What happens for each message is here, to be inlined."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.memory cimport Memory

cdef struct Segment:
    char* data
    uint64_t start              # position of its first byte
    size_t size                 # bytes written
    size_t capacity
    size_t live                 # how many times queues and consumers hold a position in it


@cython.final
cdef class Tail:
    cdef Memory* memory         # borrowed from the core, which outlives the tail
    cdef Segment** segments     # ordered by start; [first, last) are in use
    cdef size_t first
    cdef size_t last
    cdef size_t capacity
    cdef Segment* current       # the one being written, always the last
    cdef Segment* recent        # where the last look-up ended: most look-ups stay in one segment
    cdef Segment** spare        # emptied segments kept for the next rotation, so that a steady flow maps no pages
    cdef int spares
    cdef uint64_t end           # the position of the next line
    cdef size_t held            # bytes of the lines in all segments

    cdef void open(self, Memory* memory) noexcept
    cdef int rotate(self, size_t size) except -1
    cdef Segment* search(self, uint64_t position) noexcept
    cdef void drop(self, Segment* segment) noexcept
    cdef size_t index(self, uint64_t position) noexcept


cdef inline char* room_for(Tail tail, size_t size) except NULL:
    """Where to write the next line, newline included; `commit` makes it part of the log."""
    if tail.current == NULL or tail.current.size + size > tail.current.capacity:
        tail.rotate(size)
    return tail.current.data + tail.current.size


cdef inline uint64_t commit(Tail tail, size_t size) noexcept:
    cdef uint64_t position = tail.end
    tail.current.size += size
    tail.end += size
    tail.held += size
    return position


cdef inline void hold(Tail tail) noexcept:
    """One holder more of the line just committed."""
    tail.current.live += 1


cdef inline Segment* find(Tail tail, uint64_t position) noexcept:
    """The segment that has this position. The position must be held."""
    cdef Segment* segment = tail.recent
    if segment != NULL and position - segment.start < segment.size:     # an earlier position wraps and is not below
        return segment
    return tail.search(position)


cdef inline void let_go(Tail tail, uint64_t position) noexcept:
    """One holder of this position less. The position must be held."""
    cdef Segment* segment = find(tail, position)
    segment.live -= 1
    if segment.live == 0 and segment != tail.current:
        tail.drop(segment)
