"""The tail of the log in memory: see tail.pyx. What happens for each message is here, to be inlined."""

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from mqks.core.account cimport Account
from mqks.core.memory cimport Memory

cdef enum:
    SEGMENT = 256 * 1024        # small enough to stay in the cache under a steady flow; a longer line gets its own
    HEADER = 111                # bytes of a batch's header, newline included

cdef struct Segment:
    char* data                  # NULL: only on disk
    uint64_t start              # position of its first byte
    size_t size                 # bytes written
    size_t capacity
    size_t live                 # how many times queues and consumers hold a position in it
    bint asked_for              # is being read back from disk
    bint opens_file             # begins with the first line of a file
    Segment* older              # neighbours in the order in which they came into memory
    Segment* newer

cdef struct Batch:
    Segment* segment
    size_t offset               # of its header
    size_t size                 # of its lines
    size_t count


@cython.final
cdef class Tail:
    cdef Account account
    cdef Memory* memory         # of the account
    cdef Segment** segments     # ordered by start; [first, last) are in use
    cdef size_t first
    cdef size_t last
    cdef size_t capacity
    cdef Segment* current       # the one being written, always the last
    cdef Segment* recent        # where the last look-up ended: most look-ups stay in one segment
    cdef char** spare           # memory of emptied segments, kept for the next ones, so that a steady flow maps no pages
    cdef int spares
    cdef size_t room            # bytes that fit where lines are written now; with a journal: into the open batch
    cdef readonly uint64_t end  # the position of the next line
    cdef readonly size_t held   # bytes of the lines in all segments
    # With a journal only:
    cdef bint journaled
    cdef public bint refusing   # the journal can take no more
    cdef size_t resident        # bytes of memory that segments have
    cdef size_t most_resident   # beyond which the oldest go; the disk has them
    cdef Segment* oldest        # of those in memory
    cdef Segment* newest
    cdef Batch* batches         # begun since the last `seal`; the last one may be open
    cdef size_t batch_count
    cdef size_t batch_capacity
    cdef readonly uint64_t written  # the position up to which the journal's files have it all
    cdef bint has_file
    cdef uint64_t file_start
    cdef size_t file_size       # beyond which the next batch goes to a new file
    cdef bytes first_line       # of a file, after the dtid
    cdef readonly uint32_t previous # crc of the batch before

    cdef int make_room(self, size_t size) except -1
    cdef Segment* add(self, uint64_t start) except NULL
    cdef int allot(self, Segment* segment, size_t size) except -1
    cdef int rotate(self, size_t size) except -1
    cdef void skip(self, size_t size) noexcept
    cdef int open_files(
        self, uint64_t position, uint32_t previous, bytes first_line, size_t file_size, size_t most_resident
    ) except -1
    cdef int begin_batch(self) except -1
    cdef int seal(self, bytes dtid, uint64_t synced) except -1
    cdef list unwritten(self)
    cdef int adopt(self, uint64_t start, size_t size, size_t live) except -1
    cdef void all_written(self) noexcept
    cdef void evict(self) noexcept
    cdef void release(self, Segment* segment) noexcept
    cdef Segment* search(self, uint64_t position) noexcept
    cdef void drop(self, Segment* segment) noexcept
    cdef size_t index(self, uint64_t position) noexcept


cdef inline char* room_for(Tail tail, size_t size) except NULL:
    """Where to write the next line, newline included; `commit` makes it part of the log."""
    if size > tail.room:
        tail.make_room(size)
    return tail.current.data + tail.current.size


cdef inline uint64_t commit(Tail tail, size_t size) noexcept:
    cdef uint64_t position = tail.end
    tail.current.size += size
    tail.room -= size
    tail.end += size
    tail.held += size
    if tail.journaled:
        tail.batches[tail.batch_count - 1].size += size
        tail.batches[tail.batch_count - 1].count += 1
    return position


cdef inline void hold(Segment* segment) noexcept:
    """One holder more of a line in it."""
    segment.live += 1


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
