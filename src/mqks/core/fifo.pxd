"""Positions in the order in which they will be delivered: 8 bytes a message, in chunks that grow with the queue.

A small queue costs a small chunk; an emptied large chunk is freed at once.
"""

from libc.stdint cimport uint32_t, uint64_t

from mqks.core.memory cimport Memory, give_back, take

cdef enum:
    FIRST_CHUNK = 128           # bytes, header included; each next chunk is twice as large
    FULL_CHUNK = 32 * 1024
    KEPT_CHUNK = 1024           # an emptied chunk up to this size stays with its queue

cdef struct Chunk:
    Chunk* next
    uint32_t size               # bytes, as taken from memory
    uint32_t head
    uint32_t tail
    uint32_t capacity

cdef struct Fifo:
    Chunk* first
    Chunk* last
    size_t count


cdef inline uint64_t* items(Chunk* chunk) noexcept nogil:
    return <uint64_t*>(chunk + 1)


cdef inline int push(Fifo* fifo, Memory* memory, uint64_t item) except -1:
    cdef Chunk* last = fifo.last
    cdef Chunk* fresh
    cdef uint32_t size
    if last == NULL or last.tail == last.capacity:
        size = FIRST_CHUNK if last == NULL else min(2 * last.size, <uint32_t>FULL_CHUNK)
        fresh = <Chunk*>take(memory, size)
        fresh.next = NULL
        fresh.size = size
        fresh.head = fresh.tail = 0
        fresh.capacity = (size - sizeof(Chunk)) // sizeof(uint64_t)
        if last == NULL:
            fifo.first = fresh
        else:
            last.next = fresh
        fifo.last = last = fresh
    items(last)[last.tail] = item
    last.tail += 1
    fifo.count += 1
    return 0


cdef inline uint64_t pop(Fifo* fifo, Memory* memory) noexcept:
    """The oldest item. The fifo must not be empty."""
    cdef Chunk* first = fifo.first
    cdef uint64_t item = items(first)[first.head]
    first.head += 1
    fifo.count -= 1
    if first.head == first.tail:
        if first.next != NULL:
            fifo.first = first.next
            give_back(memory, first, first.size)
        elif first.size <= KEPT_CHUNK:
            first.head = first.tail = 0
        else:
            fifo.first = fifo.last = NULL
            give_back(memory, first, first.size)
    return item


cdef inline void clear(Fifo* fifo, Memory* memory) noexcept:
    cdef Chunk* chunk = fifo.first
    cdef Chunk* following
    while chunk != NULL:
        following = chunk.next
        give_back(memory, chunk, chunk.size)
        chunk = following
    fifo.first = fifo.last = NULL
    fifo.count = 0
