"""Replies on which a client may rely: see confirming.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core cimport buffer
from mqks.core.account cimport Account
from mqks.core.memory cimport Memory
from mqks.core.output cimport Output
from mqks.core.parts cimport Connection, Consumer
from mqks.core.ready cimport Ready
from mqks.core.tail cimport Tail

cdef enum:
    HELD_COST = 120             # bytes of a Held, and of its place in the list


@cython.final
cdef class Held:
    """Replies to one connection that wait for the disk; their text is in Confirmations.text."""
    cdef Connection connection
    cdef Consumer consumer              # gets messages after this reply only
    cdef size_t size
    cdef uint64_t write                 # made before this one of the writes was done


@cython.final
cdef class Confirmations:
    cdef Account account
    cdef Memory* memory                 # of the account
    cdef Tail log
    cdef Output output
    cdef Ready ready
    cdef list held                      # of Held, oldest first
    cdef buffer.Buffer text
    cdef bint new                       # since the last write
    cdef bint settled                   # one of those held since then is about something settled
    cdef bint settled_written           # one of the others is, and no sync for it has begun
    cdef uint64_t writes                # times that the journal was written
    cdef uint64_t safe                  # how many of them are safely on disk

    cdef bint must_wait(self) noexcept
    cdef int hold(self, Connection c, Consumer consumer, const char* id, size_t size) except -1
    cdef int confirm_id(self, Connection c, const char* id, size_t size) except -1
