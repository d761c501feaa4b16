"""A queue's item: where a message is in the log, and how often it was retried, in 8 bytes.

56 bits of position and 8 of retries. A count that does not fit is MANY_RETRIES here; the exact one is in Queue.retries.
"""

from libc.stdint cimport uint64_t

cdef enum:
    POSITION_BITS = 56
    MANY_RETRIES = 255


cdef inline uint64_t item_of(uint64_t position, uint64_t retries) noexcept nogil:
    return position | retries << POSITION_BITS


cdef inline uint64_t position_of(uint64_t item) noexcept nogil:
    return item & ((<uint64_t>1 << POSITION_BITS) - 1)


cdef inline uint64_t retries_of(uint64_t item) noexcept nogil:
    return item >> POSITION_BITS
