"""What a consumer was given and has not settled, in the order of delivery: see unsettled.pyx."""

from libc.stdint cimport uint64_t

from mqks.core.memory cimport Memory

cdef enum:
    KEPT_ITEMS = 16             # an emptied ring up to this size stays with its consumer
    USUAL_ITEMS = 1024

cdef extern from *:
    """
    #define MQKS_NONE UINT64_MAX
    """
    uint64_t NONE "MQKS_NONE"

cdef struct Unsettled:
    uint64_t item               # position and retry, as a queue holds it; NONE: settled out of turn
    uint64_t sequence           # its place in the queue
    uint64_t end                # the connection's count of sent bytes when the last byte of this delivery has left
    uint64_t id                 # of the message, as its keyed hash: its text may be only on disk by now

cdef struct Same:
    uint64_t first              # slot of the first delivery of a message id; NONE: a free entry
    uint64_t last               # and of its latest; between them `following` leads from one to the next

cdef struct Ring:
    Unsettled* items
    size_t capacity             # a power of 2
    uint64_t head               # slots are numbered for ever; a slot lives at its number modulo capacity
    uint64_t tail
    size_t live
    Same* index                 # by message id, made when an ack first comes out of order; NULL: none
    uint64_t* following
    size_t entries              # a power of 2, at least twice the capacity
    size_t usual                # capacity to begin with next time: a busy ring empties and fills every turn


cdef inline Unsettled* slot(Ring* ring, uint64_t number) noexcept nogil:
    return &ring.items[number & (ring.capacity - 1)]


cdef inline int add(Ring* ring, Memory* memory, Unsettled given) except -1:
    if ring.tail - ring.head == ring.capacity:
        make_room(ring, memory)
    slot(ring, ring.tail)[0] = given
    ring.tail += 1
    ring.live += 1
    if ring.index != NULL:
        index_slot(ring, ring.tail - 1)
    return 0


cdef inline void settled(Ring* ring, Memory* memory, uint64_t number) noexcept:
    """Forget this slot; the caller has taken it out of the index, or dropped the index."""
    slot(ring, number).item = NONE
    ring.live -= 1
    while ring.head < ring.tail and slot(ring, ring.head).item == NONE:
        ring.head += 1
    if ring.live == 0:
        emptied(ring, memory)


cdef inline void emptied(Ring* ring, Memory* memory) noexcept:
    drop_index(ring, memory)
    if ring.capacity > KEPT_ITEMS:
        free_ring(ring, memory)


cdef int make_room(Ring* ring, Memory* memory) except -1
cdef void index_slot(Ring* ring, uint64_t number) noexcept
cdef uint64_t take_id(Ring* ring, Memory* memory, uint64_t id) except? 1
cdef void drop_index(Ring* ring, Memory* memory) noexcept
cdef void free_ring(Ring* ring, Memory* memory) noexcept
