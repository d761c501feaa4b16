"""The ids that were published with --once: see seen.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.account cimport Account
from mqks.core.digest cimport Digest
from mqks.core.memory cimport Memory

cdef struct Entry:
    Digest digest               # of scope and id
    uint64_t position
    double time                 # when it came

cdef struct Part:
    Entry* entries
    uint64_t place              # of its copy on disk; 0: there is none


@cython.final
cdef class Seen:
    cdef Account account
    cdef Memory* memory         # of the account
    cdef object clock
    cdef object begun           # called when the first id comes
    cdef Digest secret
    cdef double window          # seconds
    cdef readonly size_t most   # ids; 0: none is remembered
    cdef readonly uint64_t duplicates       # that were met
    cdef int shift              # a part has 1 << shift entries
    cdef Part* parts            # the oldest first
    cdef size_t part_count
    cdef size_t part_capacity
    cdef uint64_t first         # number of the oldest entry
    cdef readonly uint64_t next # number of the next one
    cdef uint64_t* slots        # some bits of the digest, and of the number; 0: free
    cdef size_t capacity        # a power of 2, or 0
    cdef size_t taken
    cdef double now             # as `admit` found it
    cdef list left              # places whose parts have gone

    cdef Digest digest(self, const char* scope, size_t scope_size, const char* id, size_t id_size) noexcept
    cdef bint admit(self, Digest digest) except -1
    cdef char* replay(self, uint64_t position, char* line, char* after_id, char* flag, char* end, double time) except NULL
    cdef int make_room(self) except -1
    cdef void add(self, Digest digest, uint64_t position, double time) noexcept
    cdef Entry* entry(self, uint64_t number) noexcept
    cdef size_t find(self, Digest digest) noexcept
    cdef bint knows_at(self, size_t at) except -1
    cdef int forget_first(self) except -1
    cdef void vacate(self, size_t hole) noexcept
    cdef int rebuild(self, size_t capacity) except -1
    cdef void release(self) noexcept
