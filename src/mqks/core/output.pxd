"""What the core says to connections, and the memory it has for all: see output.pyx. Room to write is here, to be inlined."""

from mqks.core cimport buffer
from mqks.core.memory cimport Memory
from mqks.core.parts cimport Connection, waiting

cdef enum:
    LARGE = 512 * 1024          # an out-buffer of a busy connection; some are kept at rest


cdef class Output:
    cdef Memory memory
    cdef object handler
    cdef readonly size_t max_line
    cdef readonly size_t max_memory
    cdef readonly size_t high_water
    cdef list dirty_connections         # those that were said something since they were last sent
    cdef char** spare                   # large out-buffers at rest
    cdef int spares

    cdef int confirm_id(self, Connection c, const char* id, size_t size) except -1
    cdef int write(self, Connection c, const char* text, size_t size) except -1
    cdef char* large_block(self) except NULL
    cdef void drop_out(self, Connection c) noexcept


cdef inline bint choked(Output core, Connection c) noexcept:
    """Has this client let so many replies pile up, beyond what deliveries alone may, that it should not be heard?"""
    return waiting(c) > 2 * core.high_water + core.max_line


cdef inline char* out_room(Output core, Connection c, size_t size) except NULL:
    """Where the next `size` bytes for this connection go; the caller then adds to `out.tail` what it has written."""
    if c.out.data == NULL and c.large:
        c.out = buffer.Buffer(core.large_block(), 0, 0, LARGE)
    if not c.dirty:
        c.dirty = True
        core.dirty_connections.append(c)
    return buffer.reserve(&c.out, &core.memory, size)
