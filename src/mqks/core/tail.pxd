"""The tail of the log in memory: see tail.pyx."""

from libc.stdint cimport uint64_t

from mqks.core.memory cimport Memory

cdef struct Segment:
    char* data
    uint64_t start              # position of its first byte
    size_t size                 # bytes written
    size_t capacity
    size_t live                 # how many times queues and consumers hold a position in it


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
    cdef char* reserve(self, size_t size) except NULL
    cdef uint64_t commit(self, size_t size) noexcept
    cdef Segment* find(self, uint64_t position) noexcept
    cdef void hold(self, size_t count) noexcept
    cdef void release(self, uint64_t position) noexcept
    cdef int rotate(self, size_t size) except -1
    cdef void drop(self, Segment* segment) noexcept
    cdef size_t index(self, uint64_t position) noexcept
