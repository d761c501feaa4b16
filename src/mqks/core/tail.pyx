"""The tail of the log in memory: every message is stored here once, as the line it came in.

A position is a byte offset in the whole log and is never used twice. Segments know how many of their positions are
still held; one that holds none, and is not being written, gives its memory back, wherever in the log it is.

With a journal the log is cut into batches, each begun by a header, exactly as the files have them (docs/JOURNAL.md): what is
here can be written as it is. Then the tail is a window on the files: a segment that was written may lose its memory, and be
read back whole when one of its messages is wanted. Nothing else in the core knows where lines live.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport SIZE_MAX, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcpy, memmove, memset

from mqks.core cimport buffer
from mqks.core.account cimport Account
from mqks.core.crc cimport crc32
from mqks.core.memory cimport Memory, give_back, resize, take

cdef extern from "Python.h":
    int PyBUF_READ

cdef enum:
    SPARES = 4
    DTID = 24
    CRC_AT = 93                 # where in it the crc stands


@cython.final
cdef class Tail:
    def __init__(self, Account account):
        self.account = account
        self.memory = &account.memory

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)       # the account may be gone already
        cdef size_t i
        for i in range(self.first, self.last):
            give_back(&uncounted, self.segments[i].data, self.segments[i].capacity)
            give_back(&uncounted, self.segments[i], sizeof(Segment))
        for i in range(<size_t>self.spares):
            give_back(&uncounted, self.spare[i], SEGMENT)
        give_back(&uncounted, self.segments, self.capacity * sizeof(Segment*))
        give_back(&uncounted, self.spare, SPARES * sizeof(char*))
        give_back(&uncounted, self.batches, self.batch_capacity * sizeof(Batch))

    # ── finding ──

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

    # ── growing ──

    cdef int make_room(self, size_t size) except -1:
        """Have room for a line of this size: in the segment at hand or a new one, and in an open batch if there is a journal."""
        cdef size_t first_line = 0
        if self.journaled:
            size += HEADER
            if not self.has_file or self.end - self.file_start >= self.file_size:
                first_line = DTID + PyBytes_GET_SIZE(self.first_line)
        if (first_line or self.current == NULL or self.current.data == NULL
                or self.current.size + size > self.current.capacity):
            self.rotate(first_line + size)
        if first_line:
            self.has_file = True
            self.file_start = self.end
            self.current.opens_file = True
            self.skip(first_line)
        if self.journaled:
            self.begin_batch()
        self.room = self.current.capacity - self.current.size
        return 0

    cdef void skip(self, size_t size) noexcept:
        """Leave so many bytes for what `seal` fills in."""
        self.current.size += size
        self.end += size
        self.held += size

    cdef int rotate(self, size_t size) except -1:
        """Begin a new segment with room for `size` bytes."""
        cdef Segment* finished = self.current
        cdef Segment* segment = self.add(self.end)
        try:
            self.allot(segment, size)
        except BaseException:
            self.last -= 1
            give_back(self.memory, segment, sizeof(Segment))
            raise
        self.current = segment
        if finished != NULL and finished.live == 0:
            self.drop(finished)
        return 0

    cdef Segment* add(self, uint64_t start) except NULL:
        """An empty segment at the end of the log, without memory for lines."""
        cdef Segment* segment
        cdef size_t capacity
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
        segment = <Segment*>take(self.memory, sizeof(Segment))
        memset(segment, 0, sizeof(Segment))
        segment.start = start
        self.segments[self.last] = segment
        self.last += 1
        return segment

    cdef int allot(self, Segment* segment, size_t size) except -1:
        """Give it memory for `size` bytes."""
        if self.spare == NULL:
            self.spare = <char**>take(self.memory, SPARES * sizeof(char*))
        if self.spares and size <= SEGMENT:
            self.spares -= 1
            segment.data = self.spare[self.spares]
            segment.capacity = SEGMENT
        else:
            segment.data = <char*>take(self.memory, max(size, <size_t>SEGMENT))
            segment.capacity = max(size, <size_t>SEGMENT)
        self.resident += segment.capacity
        segment.newer = NULL
        segment.older = self.newest
        if self.newest != NULL:
            self.newest.newer = segment
        else:
            self.oldest = segment
        self.newest = segment
        return 0

    # ── shrinking ──

    cdef void release(self, Segment* segment) noexcept:
        """Take its memory."""
        if segment.data == NULL:
            return
        self.resident -= segment.capacity
        if segment.older != NULL:
            segment.older.newer = segment.newer
        else:
            self.oldest = segment.newer
        if segment.newer != NULL:
            segment.newer.older = segment.older
        else:
            self.newest = segment.older
        if self.spares < SPARES and segment.capacity == SEGMENT:
            self.spare[self.spares] = segment.data
            self.spares += 1
        else:
            give_back(self.memory, segment.data, segment.capacity)
        segment.data = NULL
        segment.capacity = 0

    cdef void drop(self, Segment* segment) noexcept:
        """Forget a segment that nobody holds, unless it has still to be written or read."""
        cdef size_t at
        if segment.asked_for or (self.journaled and segment.start + segment.size > self.written):
            return
        at = self.index(segment.start)
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
        self.release(segment)
        give_back(self.memory, segment, sizeof(Segment))

    cdef void evict(self) noexcept:
        """Stay within the memory for the tail: what came into memory first goes first, the disk has it."""
        cdef Segment* segment = self.oldest
        cdef Segment* following
        while self.resident > self.most_resident and segment != NULL:
            following = segment.newer
            if segment != self.current and segment != self.newest and segment.start + segment.size <= self.written:
                self.release(segment)
            segment = following

    # ── the journal ──

    cdef int open_files(
        self, uint64_t position, uint32_t previous, bytes first_line, size_t file_size, size_t most_resident
    ) except -1:
        """From now on the log has files, which begin at this position with a new one. What was replayed stays."""
        self.journaled = True
        self.end = self.written = position
        self.has_file = False
        self.previous = previous
        self.first_line = first_line
        self.file_size = file_size
        self.most_resident = most_resident
        return 0

    cdef int begin_batch(self) except -1:
        cdef size_t capacity
        if self.batch_count == self.batch_capacity:
            capacity = 2 * self.batch_capacity if self.batch_capacity else 8
            self.batches = <Batch*>resize(
                self.memory, self.batches, self.batch_capacity * sizeof(Batch), capacity * sizeof(Batch),
                self.batch_count * sizeof(Batch),
            )
            self.batch_capacity = capacity
        self.batches[self.batch_count] = Batch(self.current, self.current.size, 0, 0)
        self.batch_count += 1
        self.skip(HEADER)
        return 0

    cdef int seal(self, bytes dtid, uint64_t synced) except -1:
        """Fill in the headers of all batches begun since the last time; the next line begins another."""
        cdef char text[HEADER + 1]
        cdef char* header
        cdef Batch* batch
        cdef size_t i
        for i in range(self.batch_count):
            batch = &self.batches[i]
            header = batch.segment.data + batch.offset
            if batch.segment.opens_file and batch.offset == DTID + <size_t>PyBytes_GET_SIZE(self.first_line):
                memcpy(batch.segment.data, PyBytes_AS_STRING(dtid), DTID)
                memcpy(batch.segment.data + DTID, PyBytes_AS_STRING(self.first_line), PyBytes_GET_SIZE(self.first_line))
            snprintf(
                text, sizeof(text), b"%s batch %020llu %010llu %08llu %020llu 00000000 %08x\n", PyBytes_AS_STRING(dtid),
                <unsigned long long>(batch.segment.start + batch.offset), <unsigned long long>batch.size,
                <unsigned long long>batch.count, <unsigned long long>synced, <unsigned int>self.previous,
            )
            memcpy(header, text, HEADER)
            self.previous = crc32(0, header, HEADER + batch.size)
            snprintf(text, sizeof(text), b"%08x", <unsigned int>self.previous)
            memcpy(header + CRC_AT, text, 8)
        self.batch_count = 0
        self.room = 0
        return 0

    cdef list unwritten(self):
        """What the files lack: (position, bytes, does it begin a file), in order. The bytes are ours: look at them at once."""
        cdef list pieces = []
        cdef size_t at
        cdef Segment* segment
        cdef size_t offset
        if self.written == self.end:
            return pieces
        for at in range(self.index(self.written), self.last):
            segment = self.segments[at]
            offset = self.written - segment.start if self.written > segment.start else 0
            if offset < segment.size:
                view = PyMemoryView_FromMemory(segment.data + offset, segment.size - offset, PyBUF_READ)
                pieces.append((segment.start + offset, view, segment.opens_file and offset == 0))
        return pieces

    cdef void all_written(self) noexcept:
        """The files have all now: what nobody holds may go."""
        cdef size_t at = self.last
        cdef uint64_t since = self.written
        self.written = self.end
        while at > self.first and self.segments[at - 1].start + self.segments[at - 1].size > since:
            at -= 1
            if self.segments[at].live == 0 and self.segments[at] != self.current:
                self.drop(self.segments[at])
        self.evict()

    cdef int adopt(self, uint64_t start, size_t size, size_t live) except -1:
        """A part of the journal's files, from before this start, that has so many holders."""
        cdef Segment* segment
        if self.current != NULL and self.current.live == 0:
            self.drop(self.current)
        segment = self.add(start)
        segment.size = size
        segment.live = live
        self.held += size
        self.current = segment
        return 0

    # ── for who looks ──

    def line_near(self, uint64_t position):
        """A position at or before this one where a line begins, if the log has it in memory."""
        cdef size_t at
        for at in range(self.first, self.last):
            if position - self.segments[at].start < self.segments[at].size:
                return self.segments[at].start
        return position

    def held_lines(self, uint64_t position):
        """Lines in memory at this position or after it, as far as they follow each other: where they begin, and their text."""
        cdef Segment* segment
        cdef size_t offset
        cdef size_t at
        for at in range(self.first, self.last):
            segment = self.segments[at]
            if segment.data != NULL and segment.start + segment.size > position:
                offset = position - segment.start if position > segment.start else 0
                return segment.start + offset, segment.data[offset:segment.size]
        return None

    def line_at(self, uint64_t position, size_t most=SIZE_MAX):
        """The line that begins here, at most so much of it, and its whole size without newline; if the log has it in memory."""
        cdef Segment* segment
        cdef char* line
        cdef char* end
        if self.first == self.last:
            return None
        segment = self.segments[self.index(position)]
        if segment.data == NULL or position < segment.start or position - segment.start >= segment.size:
            return None
        line = segment.data + (position - segment.start)
        end = <char*>memchr(line, 10, segment.data + segment.size - line)
        if end == NULL or line[0] == 0 or (line != segment.data and (line - 1)[0] != 10):
            return None
        return line[:min(<size_t>(end - line), most)], end - line

    def live_in(self, uint64_t start, uint64_t end):
        """How many times messages in this part of the log are held."""
        cdef size_t at
        cdef size_t live = 0
        if self.first == self.last:
            return 0
        for at in range(self.index(start), self.last):
            if self.segments[at].start >= end:
                break
            if self.segments[at].start + self.segments[at].size > start:
                live += self.segments[at].live
        return live

    def extents(self):
        """The parts of the log that are held."""
        cdef buffer.Buffer words = buffer.Buffer(NULL, 0, 0, 0)
        cdef size_t at
        cdef uint64_t three[3]
        try:
            for at in range(self.first, self.last):
                if self.segments[at].live:
                    three[0] = self.segments[at].start
                    three[1] = self.segments[at].size
                    three[2] = self.segments[at].live
                    buffer.append(&words, self.memory, <char*>three, sizeof(three))
            return words.data[:words.tail]
        finally:
            buffer.release(&words, self.memory)
