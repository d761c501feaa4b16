"""Queues as they are, for a checkpoint, and queues as they were, after a start.

A queue is the same after a restart because it can be made again from three things: its snapshot at some moment, the messages that
came since, in the order of the journal (`replay`), and the progress since, which is how many items were taken from its head and which of
these were settled or retried (`restore`). Items taken and not settled have been delivered to someone who is gone by now: they return to
the head of the queue.

Words of 8 bytes, as the machine has them:
    snapshot    items taken so far, counts of unsettled, of returned and of parts; unsettled and returned as item and sequence;
                parts of what is ready as (place on disk, count), followed by the items where the place is 0
Progress is in progress.pyx, the parts of the log that are held are Tail.extents: start, size, live of each.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memchr, memcmp, memcpy

from mqks.core cimport buffer, fifo, heap, unsettled
from mqks.core.account cimport Account
from mqks.core.events cimport Binding, Events, look_up
from mqks.core.item cimport MANY_RETRIES, POSITION_BITS, item_of, position_of, retries_of
from mqks.core.memory cimport give_back
from mqks.core.parts cimport Consumer, Queue
from mqks.core.ready cimport Ready, pop_ready
from mqks.core.routing cimport Router
from mqks.core.seen cimport Seen
from mqks.core.settling cimport count_retries, holders
from mqks.core.tail cimport HEADER, SEGMENT, Segment, Tail, let_go
from mqks.core.text cimport is_publish
from mqks.core.unsettled cimport NONE

cdef enum:
    LOOKED_AT = 4096            # messages of a queue, to find its oldest


@cython.final
cdef class Snapshots:
    def __init__(self, Account account, Tail log, Events events, Seen seen, Ready ready, Router router, files):
        self.account = account
        self.memory = &account.memory
        self.log = log
        self.events = events
        self.seen = seen
        self.ready = ready
        self.router = router
        self.files = files

    def take(self, list queues):
        """Queues as they are, one after the other, and the bytes of each, as words."""
        cdef buffer.Buffer words = buffer.Buffer(NULL, 0, 0, 0)
        cdef bytes sizes = PyBytes_FromStringAndSize(NULL, PyList_GET_SIZE(queues) * sizeof(uint64_t))
        cdef uint64_t* size = <uint64_t*>PyBytes_AS_STRING(sizes)
        cdef size_t before = 0
        cdef Queue q
        try:
            for q in queues:
                self.add_snapshot(q, &words)
                size[0] = words.tail - before
                before = words.tail
                size += 1
            return words.data[:words.tail], sizes
        finally:
            buffer.release(&words, self.memory)

    cdef int add_snapshot(self, Queue q, buffer.Buffer* words) except -1:
        cdef size_t start = words.tail
        cdef Consumer c
        cdef fifo.Chunk* chunk = q.ready.first
        cdef uint64_t number
        cdef uint64_t pair[2]
        cdef uint64_t counts[4]
        cdef size_t i
        counts[0] = q.sequence
        counts[1] = 0
        counts[2] = q.returned.count
        counts[3] = 0
        buffer.append(words, self.memory, <char*>counts, sizeof(counts))
        for c in holders(q):
            for number in range(c.ring.head, c.ring.tail):
                pair[0] = unsettled.slot(&c.ring, number).item
                pair[1] = unsettled.slot(&c.ring, number).sequence
                if pair[0] != NONE:
                    counts[1] += 1
                    buffer.append(words, self.memory, <char*>pair, sizeof(pair))
        for i in range(q.returned.count):
            pair[0] = q.returned.items[i].item
            pair[1] = q.returned.items[i].sequence
            buffer.append(words, self.memory, <char*>pair, sizeof(pair))
        while chunk != NULL:
            if chunk.tail > chunk.head:
                counts[3] += 1
                pair[0] = chunk.where if chunk.items == NULL else 0
                pair[1] = chunk.tail - chunk.head
                buffer.append(words, self.memory, <char*>pair, sizeof(pair))
                if chunk.items != NULL:
                    buffer.append(words, self.memory, <char*>(chunk.items + chunk.head), pair[1] * sizeof(uint64_t))
            chunk = chunk.next
        memcpy(words.data + start, counts, sizeof(counts))
        return 0

    # ── coming back ──

    def adopt(self, bytes extents):
        """The parts of the log that were held when the snapshots were made."""
        cdef uint64_t* word = <uint64_t*>PyBytes_AS_STRING(extents)
        cdef size_t i
        for i in range(PyBytes_GET_SIZE(extents) // (3 * sizeof(uint64_t))):
            self.log.adopt(word[3 * i], word[3 * i + 1], word[3 * i + 2])

    def replay(self, uint64_t position, bytes batch, double time):
        """A batch of the journal, header included, goes to queues again as it did when it came, at this time."""
        cdef char* start = PyBytes_AS_STRING(batch)
        cdef char* end = start + PyBytes_GET_SIZE(batch)
        cdef char* line = start + HEADER
        cdef char* newline
        cdef Segment* current = self.log.current
        if current == NULL or current.data != NULL or current.start + current.size != position or (
            current.size + PyBytes_GET_SIZE(batch) > SEGMENT
        ):
            self.log.adopt(position, PyBytes_GET_SIZE(batch), 0)
        else:
            current.size += PyBytes_GET_SIZE(batch)
            self.log.held += PyBytes_GET_SIZE(batch)
        while line < end:
            newline = <char*>memchr(line, 10, end - line)
            if newline == NULL:
                break                   # no broker writes such a batch; `mqks journal verify` tells of it
            self.replay_line(position + (line - start), line, newline, time)
            line = newline + 1

    cdef int replay_line(self, uint64_t position, char* line, char* end, double time) except -1:
        cdef char* after_id = <char*>memchr(line, 32, end - line)
        cdef char* event
        cdef char* after_event
        cdef void* found
        cdef Queue q
        if after_id != NULL and end - after_id > 9 and is_publish(after_id):
            event = self.seen.replay(position, line, after_id, after_id + 9, end, time)
            after_event = <char*>memchr(event, 32, end - event)
            if after_event == NULL:
                raise ValueError("a publish without an event")
            found = look_up(self.events, event, after_event - event)
            self.router.route(None if found == NULL else <Binding>found, position, event, after_event, end)
        else:
            if after_id != NULL and end - after_id > 6 and memcmp(after_id, b" send ", 6) == 0:
                self.seen.replay(position, line, after_id, after_id + 6, end, time)
            for q in self.files.replay(position, line[:end - line]):
                self.router.put_replayed(q, position)
        return 0

    def restore(self, Queue q, bytes snapshot, bytes progress, uint64_t taken):
        """Make a queue what it was: `replay` has put into it what came after the snapshot (empty: there is none)."""
        cdef uint64_t nothing[4]
        cdef uint64_t* word = <uint64_t*>PyBytes_AS_STRING(snapshot) if snapshot else nothing
        cdef size_t count = PyBytes_GET_SIZE(progress) // sizeof(uint64_t)
        cdef uint64_t* known = NULL
        cdef fifo.Fifo before = fifo.Fifo(NULL, NULL, 0)
        cdef fifo.Chunk* chunk
        cdef uint64_t pairs
        cdef uint64_t i
        cdef uint64_t parts
        cdef uint64_t delivered
        nothing[0] = nothing[1] = nothing[2] = nothing[3] = 0
        q.sequence = word[0]
        delivered = word[1]
        pairs = word[1] + word[2]
        parts = word[3]
        word += 4
        if count:
            known = <uint64_t*>malloc(count * sizeof(uint64_t))
            if known == NULL:
                raise MemoryError
            memcpy(known, PyBytes_AS_STRING(progress), count * sizeof(uint64_t))
            qsort(known, count, sizeof(uint64_t), by_position)
        try:
            for i in range(pairs):
                put_back(self, q, word[2 * i], word[2 * i + 1], i < delivered, known, count)
            word += 2 * pairs
            for i in range(parts):
                if word[0]:
                    chunk = fifo.new_chunk(self.memory, sizeof(uint64_t))
                    give_back(self.memory, chunk.items, chunk.size)
                    chunk.items = NULL
                    chunk.size = 0
                    chunk.where = word[0]
                    chunk.tail = chunk.capacity = word[1]
                    word += 2
                else:
                    chunk = fifo.new_chunk(self.memory, word[1] * sizeof(uint64_t))
                    chunk.tail = word[1]
                    memcpy(chunk.items, word + 2, word[1] * sizeof(uint64_t))
                    word += 2 + word[1]
                fifo.link(&before, chunk)
                before.count += chunk.tail
            if before.last != NULL:
                before.last.next = q.ready.first
                q.ready.first = before.first
                if q.ready.last == NULL:
                    q.ready.last = before.last
                q.ready.count += before.count
            while q.sequence < taken and q.ready.count:
                q.sequence += 1
                put_back(self, q, pop_ready(self.ready, q), q.sequence, True, known, count)
            q.sequence = max(q.sequence, taken)
        finally:
            free(known)
        q.published = 0

    def restored(self):
        """All queues are back: count anew."""
        self.router.published = 0
        self.events.count_anew()

    # ── what the journal's files hold ──

    def oldest(self, Queue q, bint unacked):
        """The lowest position of what came back, what is next and, if these are asked for too, what consumers have; None: there is
        nothing to be seen. Of very many messages only those are looked at that were given or came back first. This only looks."""
        cdef uint64_t lowest = NONE
        cdef uint64_t* items
        cdef bytes on_disk
        cdef uint64_t number
        cdef size_t i
        cdef Consumer c
        cdef size_t left = LOOKED_AT
        for c in holders(q) if unacked else ():
            for number in range(c.ring.head, min(c.ring.tail, c.ring.head + 1 + left)):
                left -= left > 0
                if unsettled.slot(&c.ring, number).item != NONE:
                    lowest = min(lowest, position_of(unsettled.slot(&c.ring, number).item))
        for i in range(min(q.returned.count, <size_t>LOOKED_AT)):
            lowest = min(lowest, position_of(q.returned.items[i].item))
        if q.ready.count:
            items = q.ready.first.items
            if items == NULL:
                on_disk = self.files.look_at(q.ready.first.where, q.ready.first.tail)
                if on_disk is not None:
                    items = <uint64_t*>PyBytes_AS_STRING(on_disk)
            if items != NULL:
                lowest = min(lowest, position_of(items[q.ready.first.head]))
        return None if lowest == NONE else lowest


cdef int by_position(const void* a, const void* b) noexcept nogil:
    cdef uint64_t left = (<uint64_t*>a)[0]
    cdef uint64_t right = (<uint64_t*>b)[0]
    left = left << 8 | left >> POSITION_BITS
    right = right << 8 | right >> POSITION_BITS
    return -1 if left < right else left > right


cdef int put_back(
    Snapshots snapshots, Queue q, uint64_t item, uint64_t sequence, bint delivered, uint64_t* known, size_t count
) except -1:
    """An item that was taken from the queue: is it settled, was it retried, or had someone got it?"""
    cdef uint64_t position = position_of(item)
    cdef uint64_t retries = retries_of(item) + (1 if delivered else 0)
    cdef size_t low = 0
    cdef size_t high = count
    cdef size_t middle
    while low < high:
        middle = (low + high) // 2
        if position_of(known[middle]) < position:
            low = middle + 1
        else:
            high = middle
    if low < count and known[low] == position:
        let_go(snapshots.log, position)
        return 0
    while low < count and position_of(known[low]) == position:
        retries = retries_of(known[low])
        low += 1
    if retries >= MANY_RETRIES:
        retries = MANY_RETRIES
        count_retries(snapshots.account, q, position, MANY_RETRIES)
    return heap.heap_push(&q.returned, snapshots.memory, item_of(position, retries), sequence)
