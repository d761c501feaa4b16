"""What a consumer was given and has not settled: a ring in the order of delivery, with an index by message id.

Acks mostly come in that order, and then the ring alone answers. The first one out of order makes the index; it is kept up
until the ring is empty. Messages with one id form a chain, so that an ack settles the one delivered first, however many there
are. Slots settled in the middle are holes; when holes prevail the ring is closed up instead of grown.

An id is its keyed hash of 64 bits, with a seed that nobody knows: among a million unsettled messages, an ack of an id that is not
there meets a wrong one once in ten million million tries.
"""

from mqks.core.memory cimport Memory, give_back, take

cdef enum:
    LOOK_AHEAD = 4              # so many slots are compared before an index is made


cdef int make_room(Ring* ring, Memory* memory) except -1:
    """Close the holes if they are half of a full ring, else double it. The slots get new numbers: the index goes."""
    cdef size_t capacity = ring.capacity
    cdef Unsettled* items
    cdef size_t count = 0
    cdef uint64_t number
    if capacity == 0:
        capacity = max(ring.usual, <size_t>KEPT_ITEMS)
    elif 2 * ring.live > capacity:
        capacity *= 2
    items = <Unsettled*>take(memory, capacity * sizeof(Unsettled))
    drop_index(ring, memory)
    for number in range(ring.head, ring.tail):
        if slot(ring, number).item != NONE:
            items[count] = slot(ring, number)[0]
            count += 1
    give_back(memory, ring.items, ring.capacity * sizeof(Unsettled))
    ring.items = items
    ring.capacity = capacity
    ring.head = 0
    ring.tail = count
    return 0


cdef uint64_t take_id(Ring* ring, Memory* memory, uint64_t id) except? 1:
    """The slot of the first delivery of this message id, taken out of the index; NONE if there is none."""
    cdef uint64_t number
    if ring.index == NULL:
        for number in range(ring.head, min(ring.tail, ring.head + LOOK_AHEAD)):
            if slot(ring, number).item != NONE and slot(ring, number).id == id:
                return number
        if ring.tail - ring.head <= LOOK_AHEAD:
            return NONE
        make_index(ring, memory)
    return unindex(ring, id)


cdef int make_index(Ring* ring, Memory* memory) except -1:
    cdef size_t entries = 2 * ring.capacity
    cdef uint64_t number
    cdef size_t i
    ring.following = <uint64_t*>take(memory, ring.capacity * sizeof(uint64_t))
    try:
        ring.index = <Same*>take(memory, entries * sizeof(Same))
    finally:
        if ring.index == NULL:
            give_back(memory, ring.following, ring.capacity * sizeof(uint64_t))
            ring.following = NULL
    ring.entries = entries
    for i in range(entries):
        ring.index[i].first = NONE
    for number in range(ring.head, ring.tail):
        if slot(ring, number).item != NONE:
            index_slot(ring, number)
    return 0


cdef void index_slot(Ring* ring, uint64_t number) noexcept:
    cdef Same* same = entry_of(ring, slot(ring, number).id)
    ring.following[number & (ring.capacity - 1)] = NONE
    if same.first == NONE:
        same.first = number
    else:
        ring.following[same.last & (ring.capacity - 1)] = number
    same.last = number


cdef Same* entry_of(Ring* ring, uint64_t id) noexcept:
    """The entry of this id, or the free one where it would go. The table is never full: it has twice the ring's slots."""
    cdef size_t at = id & (ring.entries - 1)
    while ring.index[at].first != NONE and slot(ring, ring.index[at].first).id != id:
        at = (at + 1) & (ring.entries - 1)
    return &ring.index[at]


cdef uint64_t unindex(Ring* ring, uint64_t id) noexcept:
    cdef Same* same = entry_of(ring, id)
    cdef uint64_t number = same.first
    if number == NONE:
        return NONE
    if number != same.last:
        same.first = ring.following[number & (ring.capacity - 1)]
    else:
        vacate(ring, same - ring.index)
    return number


cdef void vacate(Ring* ring, size_t hole) noexcept:
    """Free an entry and move up those that had to step over it, so that no look-up ever meets a gap."""
    cdef size_t mask = ring.entries - 1
    cdef size_t at = hole
    cdef size_t home
    while True:
        at = (at + 1) & mask
        if ring.index[at].first == NONE:
            break
        home = slot(ring, ring.index[at].first).id & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            ring.index[hole] = ring.index[at]
            hole = at
    ring.index[hole].first = NONE


cdef void drop_index(Ring* ring, Memory* memory) noexcept:
    if ring.index == NULL:
        return
    give_back(memory, ring.index, ring.entries * sizeof(Same))
    give_back(memory, ring.following, ring.capacity * sizeof(uint64_t))
    ring.index = NULL
    ring.following = NULL
    ring.entries = 0


cdef void free_ring(Ring* ring, Memory* memory) noexcept:
    drop_index(ring, memory)
    give_back(memory, ring.items, ring.capacity * sizeof(Unsettled))
    ring.items = NULL
    ring.usual = min(ring.capacity, <size_t>USUAL_ITEMS)
    ring.capacity = 0
    ring.head = ring.tail = 0
    ring.live = 0
