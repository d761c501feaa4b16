"""Bytes on their way: appended at the tail, taken from the head; nothing allocated while empty."""

from libc.string cimport memcpy, memmove

from mqks.core.memory cimport Memory, give_back, take

cdef enum:
    SMALL = 512                 # first capacity of a buffer; it doubles as needed

cdef struct Buffer:
    char* data
    size_t head
    size_t tail
    size_t capacity


cdef inline char* reserve(Buffer* buffer, Memory* memory, size_t size) except NULL:
    """Where the next `size` (at least 1) bytes go; the caller then adds to `tail` what it has written."""
    cdef size_t held = buffer.tail - buffer.head
    cdef size_t capacity = buffer.capacity
    cdef char* data
    if buffer.tail + size > capacity:
        # Moving down is worth it only where it moves less than it gains, else a full buffer would move for each line.
        if held <= buffer.head and held + size <= capacity:
            memmove(buffer.data, buffer.data + buffer.head, held)
        else:
            capacity = 2 * capacity if capacity else SMALL
            while capacity < held + size:
                capacity *= 2
            data = <char*>take(memory, capacity)
            if held:
                memcpy(data, buffer.data + buffer.head, held)
            give_back(memory, buffer.data, buffer.capacity)
            buffer.data = data
            buffer.capacity = capacity
        buffer.head = 0
        buffer.tail = held
    return buffer.data + buffer.tail


cdef inline int append(Buffer* buffer, Memory* memory, const char* text, size_t size) except -1:
    if size:
        memcpy(reserve(buffer, memory, size), text, size)
        buffer.tail += size
    return 0


cdef inline void release(Buffer* buffer, Memory* memory) noexcept:
    give_back(memory, buffer.data, buffer.capacity)
    buffer.data = NULL
    buffer.head = buffer.tail = buffer.capacity = 0
