"""Messages that came back from a consumer, lowest sequence number first: that is their old place in the queue."""

from libc.stdint cimport uint64_t

from mqks.core.memory cimport Memory, give_back, resize

cdef struct Returned:
    uint64_t item               # position and retry, as a queue holds it
    uint64_t sequence

cdef struct Heap:
    Returned* items
    size_t count
    size_t capacity


cdef inline int heap_push(Heap* heap, Memory* memory, uint64_t item, uint64_t sequence) except -1:
    cdef size_t child = heap.count
    cdef size_t parent
    cdef size_t capacity
    if heap.count == heap.capacity:
        capacity = 2 * heap.capacity if heap.capacity else 8
        heap.items = <Returned*>resize(
            memory, heap.items, heap.capacity * sizeof(Returned), capacity * sizeof(Returned),
            heap.count * sizeof(Returned),
        )
        heap.capacity = capacity
    heap.count += 1
    while child:
        parent = (child - 1) // 2
        if heap.items[parent].sequence < sequence:
            break
        heap.items[child] = heap.items[parent]
        child = parent
    heap.items[child].item = item
    heap.items[child].sequence = sequence
    return 0


cdef inline Returned heap_pop(Heap* heap, Memory* memory) noexcept:
    """The one with the lowest sequence number. The heap must not be empty."""
    cdef Returned top = heap.items[0]
    cdef Returned moved
    cdef size_t parent = 0
    cdef size_t child
    heap.count -= 1
    moved = heap.items[heap.count]
    while True:
        child = 2 * parent + 1
        if child >= heap.count:
            break
        if child + 1 < heap.count and heap.items[child + 1].sequence < heap.items[child].sequence:
            child += 1
        if moved.sequence < heap.items[child].sequence:
            break
        heap.items[parent] = heap.items[child]
        parent = child
    heap.items[parent] = moved
    if heap.count == 0:
        heap_clear(heap, memory)
    return top


cdef inline void heap_clear(Heap* heap, Memory* memory) noexcept:
    give_back(memory, heap.items, heap.capacity * sizeof(Returned))
    heap.items = NULL
    heap.count = heap.capacity = 0
