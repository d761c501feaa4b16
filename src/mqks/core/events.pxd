"""Which queues an event goes to: see events.pyx."""

from libc.stdint cimport uint64_t


cdef class Binding:
    cdef bytes event
    cdef list queues            # of Queue; one may stand here twice, for two reasons
    cdef int inspectors         # how many patterns want to look into the data of this event

cdef struct Place:
    uint64_t hash
    void* binding               # a Binding, owned by `Events.bindings`; NULL: free


cdef class Events:
    cdef dict bindings
    cdef Place* places
    cdef size_t capacity        # a power of 2, at least twice the number of bindings
    cdef uint64_t seed

    cdef Binding find(self, const char* event, size_t size)
    cdef Binding binding(self, bytes event)
    cdef int forget_unused(self, Binding binding) except -1
    cdef uint64_t hash(self, bytes event) noexcept
    cdef Place* place(self, uint64_t hash, const char* event, size_t size) noexcept
    cdef void insert(self, Binding binding) noexcept
    cdef int rebuild(self, size_t capacity) except -1
    cdef void vacate(self, size_t hole) noexcept
