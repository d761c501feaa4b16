"""The tail of the log in memory: every message is stored here once, as the line it came in.

A position is a byte offset in the whole log and is never used twice. Segments know how many of their positions are
still held; one that holds none, and is not being written, gives its memory back, wherever in the log it is. This is the
seam under which the journal puts its files: nothing else in the core knows where lines live.
"""

cimport cython
from libc.string cimport memmove

from mqks.core.memory cimport Memory, give_back, resize, take

cdef enum:
    SEGMENT = 256 * 1024        # small enough to stay in the cache under a steady flow; a longer line gets its own
    SPARES = 4


@cython.final
cdef class Tail:
    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)       # the core that counted may be gone already
        cdef size_t i
        for i in range(self.first, self.last):
            give_back(&uncounted, self.segments[i].data, self.segments[i].capacity)
            give_back(&uncounted, self.segments[i], sizeof(Segment))
        for i in range(<size_t>self.spares):
            give_back(&uncounted, self.spare[i].data, self.spare[i].capacity)
            give_back(&uncounted, self.spare[i], sizeof(Segment))
        give_back(&uncounted, self.segments, self.capacity * sizeof(Segment*))
        give_back(&uncounted, self.spare, SPARES * sizeof(Segment*))

    cdef void open(self, Memory* memory) noexcept:
        self.memory = memory

    cdef Segment* search(self, uint64_t position) noexcept:
        self.recent = self.segments[self.index(position)]
        return self.recent

    cdef size_t index(self, uint64_t position) noexcept:
        """The last segment that starts at or before the position."""
        cdef size_t low = self.first
        cdef size_t high = self.last
        cdef size_t middle
        while high - low > 1:
            middle = (low + high) // 2
            if self.segments[middle].start <= position:
                low = middle
            else:
                high = middle
        return low

    cdef int rotate(self, size_t size) except -1:
        """Begin a new segment with room for `size` bytes."""
        cdef Segment* finished = self.current
        cdef Segment* segment
        cdef size_t capacity
        if self.spare == NULL:
            self.spare = <Segment**>take(self.memory, SPARES * sizeof(Segment*))
        if self.last == self.capacity:
            capacity = self.capacity
            if self.first > capacity // 2:
                memmove(self.segments, self.segments + self.first, (self.last - self.first) * sizeof(Segment*))
                self.last -= self.first
                self.first = 0
            else:
                capacity = 2 * capacity if capacity else 16
                self.segments = <Segment**>resize(
                    self.memory, self.segments, self.capacity * sizeof(Segment*), capacity * sizeof(Segment*),
                    self.last * sizeof(Segment*),
                )
                self.capacity = capacity
        if self.spares and size <= SEGMENT:
            self.spares -= 1
            segment = self.spare[self.spares]
        else:
            segment = <Segment*>take(self.memory, sizeof(Segment))
            segment.capacity = max(size, <size_t>SEGMENT)
            segment.data = NULL
            try:
                segment.data = <char*>take(self.memory, segment.capacity)
            finally:
                if segment.data == NULL:
                    give_back(self.memory, segment, sizeof(Segment))
        segment.start = self.end
        segment.size = 0
        segment.live = 0
        self.segments[self.last] = segment
        self.last += 1
        self.current = segment
        if finished != NULL and finished.live == 0:
            self.drop(finished)
        return 0

    cdef void drop(self, Segment* segment) noexcept:
        cdef size_t at = self.index(segment.start)
        while self.segments[at] != segment:     # an unused segment shares its start with the next one
            at -= 1
        if at == self.first:
            self.first += 1
        else:
            memmove(self.segments + at, self.segments + at + 1, (self.last - at - 1) * sizeof(Segment*))
            self.last -= 1
        if self.recent == segment:
            self.recent = NULL
        self.held -= segment.size
        if self.spares < SPARES and segment.capacity == SEGMENT:
            self.spare[self.spares] = segment
            self.spares += 1
        else:
            give_back(self.memory, segment.data, segment.capacity)
            give_back(self.memory, segment, sizeof(Segment))
