"""Queues within their limits of length and bytes: what is dropped when one that drops its oldest is full, and how bytes are counted.

A message that a full queue refuses never comes here: routing asks `refuses` before it takes the line. One that drops its oldest takes
every message, and then the one that would be delivered next goes, as if it had been acked: so the journal, which says only what was
taken and settled, makes the same queue again, whatever its limits are by then. What consumers have been given is theirs; if they
have all that is allowed, it is the new message that is next, and goes; so does one that is larger than all that is allowed, after
all others: nobody else's message is refused for the sake of a queue that may lose some.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport SIZE_MAX, uint64_t
from libc.stdlib cimport qsort

from mqks.core cimport buffer, fifo, unsettled
from mqks.core.account cimport Account
from mqks.core.item cimport position_of
from mqks.core.parts cimport Consumer, Queue, is_over
from mqks.core.settling cimport Acks, holders
from mqks.core.sizes cimport LineSizes
from mqks.core.tail cimport SEGMENT, Segment, Tail, find
from mqks.core.unsettled cimport NONE

cdef enum:
    EXCESS = 64                 # so many more go with each message that comes, while a queue is longer than it may be
    READ_AT_ONCE = 4 << 20      # bytes of the log that are read back for it, before others have their turn


@cython.final
cdef class QueueLimits:
    def __init__(self, Account account, Tail log, LineSizes sizes, Acks acks, policy, files):
        self.account = account
        self.memory = &account.memory
        self.log = log
        self.sizes = sizes
        self.acks = acks
        self.policy = policy
        self.files = files

    def limit(self, Queue q, size_t max_length, uint64_t max_bytes, bint drops_oldest, uint64_t bytes):
        """Limits for a queue; 0 stands for none. If its bytes were not limited before, they are those that `measure` found."""
        cdef bint limited = max_length != 0 or max_bytes != 0
        self.limited += limited
        self.limited -= q.limited
        q.bytes = 0 if max_bytes == 0 else bytes if q.max_bytes == 0 else q.bytes
        q.limited = limited
        q.max_length = max_length
        q.max_bytes = max_bytes
        q.drops_oldest = drops_oldest
        q.exceeds = is_over(q)

    def trim(self, Queue q, size_t most):
        """Drop what is too much, at most so many messages, fewer where much has to be read; answers whether there is more to do."""
        return q.drops_oldest and q.exceeds and self.drop_oldest(q, most, READ_AT_ONCE)

    def purge(self, Queue q, size_t limit):
        """Settle what is ready, at most so many, fewer where much has to be read; answers how many: none only if none is ready."""
        cdef uint64_t before = self.sizes.read_back
        cdef size_t count = 0
        if limit >= q.ready.count + q.returned.count and not q.unsettled:
            q.bytes = 0                 # it will be empty: nobody needs to know how large each of them was
        while count < limit and self.sizes.read_back - before < READ_AT_ONCE and self.acks.settle_next(q):
            count += 1
        return count

    cdef int came(self, Queue q) except -1:
        """The line just committed was put into this queue, which has limits."""
        self.sizes.came(q)
        if q.drops_oldest and is_over(q):
            if q.exceeds:
                self.drop_oldest(q, EXCESS, SEGMENT)
            elif self.drop_oldest(q, SIZE_MAX, READ_AT_ONCE):
                q.exceeds = True
                self.policy.exceeds(q)                  # `trim` does the rest
        return 0

    cdef bint drop_oldest(self, Queue q, size_t most, uint64_t most_read) except -1:
        """What is next goes, until the queue is within its limits, or it is enough for now: so many have gone, or so much was read.
        Answers whether it is."""
        cdef uint64_t before = self.sizes.read_back
        cdef size_t count = 0
        while count < most and self.sizes.read_back - before < most_read and is_over(q) and self.acks.settle_next(q):
            count += 1
        q.exceeds = q.exceeds and is_over(q)
        if count and not q.overflows:
            q.overflows = True
            self.policy.overflowed(q)
        q.dropped += count
        self.dropped += count
        return is_over(q) and (count == most or self.sizes.read_back - before >= most_read)

    def measure(self, Queue q, size_t most_messages, size_t most_read):
        """The bytes of the messages that a queue has, also of those given to consumers. None: that would
        mean to look at more messages, or to read more from disk, than so many and so much, or a part cannot be read."""
        cdef buffer.Buffer words = buffer.Buffer(NULL, 0, 0, 0)
        cdef uint64_t total = 0
        cdef uint64_t* positions
        cdef Segment* segment
        cdef size_t count
        cdef size_t i
        if q.ready.count + q.returned.count + q.unsettled > most_messages:
            return None
        try:
            if not gather_positions(self, q, &words):
                return None
            positions = <uint64_t*>words.data
            count = words.tail // sizeof(uint64_t)
            if count:
                qsort(positions, count, sizeof(uint64_t), in_order)     # so that each part of the log is read once
            for i in range(count):
                segment = find(self.log, positions[i])
                if segment.data == NULL:
                    if segment.size > most_read:
                        return None
                    most_read -= segment.size
                total += self.sizes.size_at(positions[i])
            return total
        finally:
            buffer.release(&words, self.memory)


cdef bint gather_positions(QueueLimits limits, Queue q, buffer.Buffer* words) except -1:
    """Of all messages that the queue has; false: some of them cannot be read."""
    cdef fifo.Chunk* chunk = q.ready.first
    cdef Consumer c
    cdef uint64_t* items
    cdef bytes on_disk
    cdef uint64_t number
    cdef size_t i
    for c in holders(q):
        for number in range(c.ring.head, c.ring.tail):
            if unsettled.slot(&c.ring, number).item != NONE:
                add_position(limits, words, unsettled.slot(&c.ring, number).item)
    for i in range(q.returned.count):
        add_position(limits, words, q.returned.items[i].item)
    while chunk != NULL:
        items = chunk.items
        if items == NULL:
            on_disk = limits.files.look_at(chunk.where, chunk.tail)
            if on_disk is None:
                return False
            items = <uint64_t*>PyBytes_AS_STRING(on_disk)
        for i in range(chunk.head, chunk.tail):
            add_position(limits, words, items[i])
        chunk = chunk.next
    return True


cdef int add_position(QueueLimits limits, buffer.Buffer* words, uint64_t item) except -1:
    cdef uint64_t position = position_of(item)
    return buffer.append(words, limits.memory, <char*>&position, sizeof(position))


cdef int in_order(const void* a, const void* b) noexcept nogil:
    cdef uint64_t left = (<uint64_t*>a)[0]
    cdef uint64_t right = (<uint64_t*>b)[0]
    return -1 if left < right else left > right
