"""What all parts of the core count: see account.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.memory cimport Memory

cdef enum:
    MARGIN = 16 * 1024 * 1024   # bytes above max_memory for what is on its way to clients: see Account.ceiling


@cython.final
cdef class Account:
    cdef Memory memory
    cdef readonly size_t max_memory     # from here on nothing is taken that needs memory
    cdef readonly size_t ceiling        # and from here on nothing is delivered, and only short requests of those who read are heard
    cdef bint squeezed                  # memory was full, and some wait until it is not: see Delivery.ease


@cython.final
cdef class Work:
    cdef readonly uint64_t effort       # done so far: 1 for each queue that a message came to, and as much for what takes as long


cdef inline bint is_full(Account account) noexcept:
    return account.memory.used >= account.max_memory
