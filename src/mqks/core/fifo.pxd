"""Positions in the order in which they will be delivered: 8 bytes a message, in chunks that grow with the queue.

A small queue costs a small chunk; an emptied large chunk is freed at once. With a journal, chunks in the middle of a long queue
live on disk: whoever pops brings the first one back before.
"""

from libc.stdint cimport uint32_t, uint64_t

from mqks.core.memory cimport Memory, give_back, take

cdef enum:
    FIRST_CHUNK = 96            # bytes of items; each next chunk is twice as large
    FULL_CHUNK = 32 * 1024
    KEPT_CHUNK = 1024           # an emptied chunk up to this size stays with its queue

cdef struct Chunk:
    Chunk* next
    uint64_t* items             # NULL: on disk
    uint64_t where              # its place there
    uint32_t size               # bytes of the items, as taken from memory
    uint32_t head
    uint32_t tail
    uint32_t capacity

cdef struct Fifo:
    Chunk* first
    Chunk* last
    size_t count


cdef inline Chunk* new_chunk(Memory* memory, uint32_t size) except NULL:
    cdef Chunk* fresh = <Chunk*>take(memory, sizeof(Chunk))
    fresh.items = NULL
    try:
        fresh.items = <uint64_t*>take(memory, size)
    finally:
        if fresh.items == NULL:
            give_back(memory, fresh, sizeof(Chunk))
    fresh.next = NULL
    fresh.where = 0
    fresh.size = size
    fresh.head = fresh.tail = 0
    fresh.capacity = size // sizeof(uint64_t)
    return fresh


cdef inline void free_chunk(Chunk* chunk, Memory* memory) noexcept:
    give_back(memory, chunk.items, chunk.size)
    give_back(memory, chunk, sizeof(Chunk))


cdef inline void link(Fifo* fifo, Chunk* fresh) noexcept:
    if fifo.last == NULL:
        fifo.first = fresh
    else:
        fifo.last.next = fresh
    fifo.last = fresh


cdef inline bint push(Fifo* fifo, Memory* memory, uint64_t item) except -1:
    """Answers whether that began a new chunk."""
    cdef Chunk* last = fifo.last
    cdef bint begins = last == NULL or last.tail == last.capacity
    if begins:
        link(fifo, new_chunk(memory, FIRST_CHUNK if last == NULL else min(2 * last.capacity * sizeof(uint64_t), <size_t>FULL_CHUNK)))
        last = fifo.last
    last.items[last.tail] = item
    last.tail += 1
    fifo.count += 1
    return begins


cdef inline uint64_t pop(Fifo* fifo, Memory* memory) noexcept:
    """The oldest item. The fifo must not be empty, and its first chunk must be here."""
    cdef Chunk* first = fifo.first
    cdef uint64_t item = first.items[first.head]
    first.head += 1
    fifo.count -= 1
    if first.head == first.tail:
        if first.next != NULL:
            fifo.first = first.next
            free_chunk(first, memory)
        elif first.size <= KEPT_CHUNK:
            first.head = first.tail = 0
        else:
            fifo.first = fifo.last = NULL
            free_chunk(first, memory)
    return item


cdef inline void clear(Fifo* fifo, Memory* memory) noexcept:
    cdef Chunk* chunk = fifo.first
    cdef Chunk* following
    while chunk != NULL:
        following = chunk.next
        free_chunk(chunk, memory)
        chunk = following
    fifo.first = fifo.last = NULL
    fifo.count = 0
