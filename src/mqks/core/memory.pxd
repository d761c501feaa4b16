"""Where the core's memory comes from: counted, and given back to the system when freed.

Large blocks are pages of their own (mmap), so that a drained backlog really leaves the process. Everything
else is malloc, whose own bytes are counted too. The size decides, so whoever frees a block must say the size with which it was
taken.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef extern from "sys/mman.h" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long offset)
    int munmap(void* address, size_t length)
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS
    void* MAP_FAILED

cdef enum:
    OWN_PAGES = 64 * 1024       # blocks of this size and above are mapped
    MALLOC_COST = 16            # bytes that malloc adds to a block: its header, and rounding

cdef struct Memory:
    size_t used


cdef inline void* take(Memory* memory, size_t size) except NULL:
    cdef void* block
    if size >= OWN_PAGES:
        block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if block == MAP_FAILED:
            raise MemoryError(f"the system refused {size} bytes")
    else:
        block = malloc(size)
        if block == NULL:
            raise MemoryError(f"the system refused {size} bytes")
        memory.used += MALLOC_COST
    memory.used += size
    return block


cdef inline void give_back(Memory* memory, void* block, size_t size) noexcept:
    if block == NULL:
        return
    memory.used -= size
    if size >= OWN_PAGES:
        munmap(block, size)
    else:
        memory.used -= MALLOC_COST
        free(block)


cdef inline void* resize(Memory* memory, void* block, size_t old, size_t new, size_t keep) except NULL:
    """A block of the new size that begins with `keep` bytes of the old one, which is freed."""
    cdef void* fresh = take(memory, new)
    if keep:
        memcpy(fresh, block, keep)
    give_back(memory, block, old)
    return fresh
