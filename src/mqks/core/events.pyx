"""Which queues an event goes to, looked up by the bytes of its name as they stand in the receive buffer.

A dict of bytes would do but for the object it needs for each look-up, which costs more than all else on the way of a message.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from mqks.core.hashing cimport hash_of

cdef enum:
    SMALLEST = 16
    FEW = 32                    # queues of an event, which are searched one by one


cdef Place* place_in(Events events, bytes event) noexcept:
    cdef size_t size = PyBytes_GET_SIZE(event)
    return place_of(events, hash_of(PyBytes_AS_STRING(event), size, events.seed), PyBytes_AS_STRING(event), size)


@cython.final
cdef class Binding:
    def __init__(self, bytes event):
        self.event = event
        self.queues = []

    cdef int add(self, queue) except -1:
        if queue in (self.queues if self.places is None else self.places):
            if self.twice is None:
                self.twice = set()
            self.twice.add(queue)
            return 0
        self.queues.append(queue)
        if self.places is not None:
            self.places[queue] = len(self.queues) - 1
        elif len(self.queues) > FEW:
            self.places = {each: place for place, each in enumerate(self.queues)}
        return 0

    cdef int remove(self, queue) except -1:
        """In constant time, however many there are: the last one takes its place."""
        cdef Py_ssize_t place
        if self.twice is not None and queue in self.twice:
            self.twice.remove(queue)
            return 0
        if self.places is None:
            self.queues.remove(queue)
            return 0
        place = self.places.pop(queue)
        last = self.queues.pop()
        if last is not queue:
            self.queues[place] = last
            self.places[last] = place
        return 0


@cython.final
cdef class Events:
    def __cinit__(self, uint64_t seed):
        self.seed = seed
        self.bindings = {}
        self.everything = Binding(b"")
        self.capacity = SMALLEST
        self.places = <Place*>calloc(self.capacity, sizeof(Place))
        if self.places == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.places)

    def bind(self, bytes event, queue):
        self.binding(event).add(queue)

    def unbind(self, bytes event, queue):
        cdef Binding binding = self.bindings[event]
        binding.remove(queue)
        self.forget_unused(binding)

    def inspect(self, bytes event, int change):
        """Add to the number of patterns that look into this event's data."""
        cdef Binding binding = self.binding(event)
        binding.inspectors += change
        self.forget_unused(binding)

    def take_everything(self, queue, bint yes):
        """A queue that wants every MQKS message, or no longer does."""
        if yes:
            self.everything.add(queue)
        else:
            self.everything.remove(queue)

    def inspect_everything(self, int change):
        """Add to the number of patterns that look into the data of every MQKS message."""
        self.inspectors += change

    def queues(self, bytes event):
        cdef Binding binding = self.bindings.get(event)
        return [] if binding is None else list(binding.queues)

    def count(self, bytes event):
        """A message of this event has come, and not through `route`."""
        cdef Binding binding = self.bindings.get(event)
        if binding is not None:
            binding.published += 1

    def counts(self):
        """Each event that a queue wants, and how many messages of it have come so far: since it is bound."""
        cdef Binding binding
        return [(binding.event, binding.published) for binding in self.bindings.values()]

    cdef int count_anew(self) except -1:
        cdef Binding binding
        for binding in self.bindings.values():
            binding.published = 0
        return 0

    def __iter__(self):
        return iter(self.bindings)

    def __contains__(self, event):
        return event in self.bindings

    def __len__(self):
        return len(self.bindings)

    cdef Binding binding(self, bytes event):
        cdef Binding binding = self.bindings.get(event)
        if binding is None:
            if 2 * <size_t>len(self.bindings) >= self.capacity:
                self.rebuild(2 * self.capacity)
            binding = self.bindings[event] = Binding(event)
            self.insert(binding)
        return binding

    cdef int forget_unused(self, Binding binding) except -1:
        cdef bytes event = binding.event
        if binding.queues or binding.inspectors:
            return 0
        self.vacate(place_in(self, event) - self.places)
        del self.bindings[event]
        if self.capacity > SMALLEST and 8 * <size_t>len(self.bindings) < self.capacity:
            self.rebuild(self.capacity // 2)
        return 0

    cdef void insert(self, Binding binding) noexcept:
        cdef bytes event = binding.event
        cdef Place* place = place_in(self, event)
        place.hash = hash_of(PyBytes_AS_STRING(event), PyBytes_GET_SIZE(event), self.seed)
        place.event = PyBytes_AS_STRING(event)
        place.size = PyBytes_GET_SIZE(event)
        place.binding = <void*>binding

    cdef int rebuild(self, size_t capacity) except -1:
        cdef Place* places = <Place*>calloc(capacity, sizeof(Place))
        cdef Binding binding
        if places == NULL:
            raise MemoryError
        free(self.places)
        self.places = places
        self.capacity = capacity
        for binding in self.bindings.values():
            self.insert(binding)
        return 0

    cdef void vacate(self, size_t hole) noexcept:
        """Free a place and move up those that had to step over it."""
        cdef size_t mask = self.capacity - 1
        cdef size_t at = hole
        while True:
            at = (at + 1) & mask
            if self.places[at].binding == NULL:
                break
            if ((at - <size_t>self.places[at].hash) & mask) >= ((at - hole) & mask):
                self.places[hole] = self.places[at]
                hole = at
        self.places[hole].binding = NULL
