"""What the core says to connections: see output.pyx. Room to write is here, to be inlined."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core cimport buffer
from mqks.core.account cimport Account, Work
from mqks.core.memory cimport Memory
from mqks.core.parts cimport Connection, Consumer, waiting

cdef enum:
    LARGE = 512 * 1024          # an out-buffer of a busy connection; some are kept at rest
    MANY = 64 * 1024            # bytes of replies that a client need not have read to be heard, though memory is full


@cython.final
cdef class Output:
    cdef Account account
    cdef Memory* memory                 # of the account
    cdef Work work
    cdef object updates                 # makes the lines that tell consumers about their queues: see callbacks.py
    cdef readonly size_t max_line
    cdef readonly size_t high_water
    cdef dict owed                      # connections with consumers whose --update found no memory, as keys
    cdef list dirty_connections         # those that were said something since they were last sent
    cdef char** spare                   # large out-buffers at rest
    cdef int spares
    cdef int most_spares                # so few that they do not fill the memory

    cdef int attach(self, Connection c) except -1
    cdef int detach(self, Connection c) except -1
    cdef int mark_dirty(self, Connection c) except -1
    cdef int write(self, Connection c, const char* text, size_t size) except -1
    cdef int tell_due(self, Connection c) except -1
    cdef char* large_block(self) except NULL
    cdef void drop_out(self, Connection c) noexcept


cdef inline bint choked(Output output, Connection c) noexcept:
    """Has this client let so many replies pile up, beyond what deliveries alone may, that it should not be heard?"""
    cdef size_t most
    cdef size_t used
    if waiting(c) > 2 * output.high_water + output.max_line:
        return True
    used = output.memory.used
    if used < output.account.max_memory:
        return False
    most = MANY if used < output.account.ceiling else 0
    if c.held_bytes <= MANY and (waiting(c) <= most or c.replies <= most):
        return False
    output.account.squeezed = True
    return True


cdef inline bint unheard(Output output, Connection c) noexcept:
    """Are its lines to wait?"""
    return c.blocked or choked(output, c)


cdef inline char* out_room(Output output, Connection c, size_t size) except NULL:
    """Where the next `size` bytes for this connection go; the caller then adds to `out.tail` what it has written."""
    if c.out.data == NULL and c.large:
        c.out = buffer.Buffer(output.large_block(), 0, 0, LARGE)
    if not c.dirty:
        output.mark_dirty(c)
    return buffer.reserve(&c.out, output.memory, size)
