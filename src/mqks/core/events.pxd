"""Which queues an event goes to: see events.pyx. The look-up is here, to be inlined."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.hashing cimport hash_of, same_bytes


@cython.final
cdef class Binding:
    cdef bytes event
    cdef list queues            # of Queue, in no order
    cdef dict places            # where each of them stands in it; None while they are few
    cdef set twice              # those that are bound for two reasons; None: none is
    cdef int inspectors         # how many patterns want to look into the data of this event
    cdef uint64_t published     # messages of this event, since it is bound

    cdef int add(self, queue) except -1
    cdef int remove(self, queue) except -1

cdef struct Place:
    uint64_t hash
    const char* event           # the bytes of the binding's name
    size_t size
    void* binding               # a Binding, owned by `Events.bindings`; NULL: free


@cython.final
cdef class Events:
    cdef dict bindings
    cdef Binding everything     # queues that take every MQKS message
    cdef int inspectors         # how many patterns look into the data of every event
    cdef Place* places
    cdef size_t capacity        # a power of 2, at least twice the number of bindings
    cdef uint64_t seed

    cdef Binding binding(self, bytes event)
    cdef int forget_unused(self, Binding binding) except -1
    cdef int count_anew(self) except -1
    cdef void insert(self, Binding binding) noexcept
    cdef int rebuild(self, size_t capacity) except -1
    cdef void vacate(self, size_t hole) noexcept


cdef inline Place* place_of(Events events, uint64_t hash, const char* event, size_t size) noexcept:
    """The place of this event, or the free one where it would go."""
    cdef size_t at = hash & (events.capacity - 1)
    cdef Place* place
    while True:
        place = &events.places[at]
        if place.binding == NULL or (
            place.hash == hash and place.size == size and same_bytes(place.event, event, size)
        ):
            return place
        at = (at + 1) & (events.capacity - 1)


cdef inline void* look_up(Events events, const char* event, size_t size) noexcept:
    """The Binding of this event, borrowed, or NULL."""
    return place_of(events, hash_of(event, size, events.seed), event, size).binding
