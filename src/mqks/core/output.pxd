"""What the core says to connections, and the memory it has for all: see output.pyx. Room to write is here, to be inlined."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core cimport buffer
from mqks.core.memory cimport Memory
from mqks.core.parts cimport Connection, Consumer, waiting

cdef enum:
    LARGE = 512 * 1024          # an out-buffer of a busy connection; some are kept at rest
    MANY = 64 * 1024            # bytes of replies that a client need not have read to be heard, though memory is full
    MARGIN = 16 * 1024 * 1024   # bytes above max_memory for what is on its way to clients: see Output.ceiling
    HELD_COST = 120             # bytes of a Held, and of its place in the list


@cython.final
cdef class Held:
    """Replies to one connection that wait for the disk; their text is in Output.held_text."""
    cdef Connection connection
    cdef Consumer consumer              # gets messages after this reply only
    cdef size_t size
    cdef uint64_t write                 # made before this one of the core's writes was done


cdef class Output:
    cdef Memory memory
    cdef object handler
    cdef readonly size_t max_line
    cdef readonly size_t max_memory     # from here on nothing is taken that needs memory
    cdef readonly size_t ceiling        # and from here on nothing is delivered, and only short requests of those who read are heard
    cdef readonly size_t high_water
    cdef readonly uint64_t bytes_in     # taken from all clients, also from those that are gone
    cdef readonly uint64_t bytes_out    # given to them
    cdef bint squeezed                  # memory was full, and some wait until it is not: see `ease`
    cdef dict owed                      # connections with consumers whose --update found no memory, as keys
    cdef list dirty_connections         # those that were said something since they were last sent
    cdef char** spare                   # large out-buffers at rest
    cdef int spares
    cdef int most_spares                # so few that they do not fill the memory
    # With a journal only:
    cdef public bint refusing           # the journal can take no more
    cdef bint holds                     # there is a journal: replies wait for the disk
    cdef list held                      # of Held, oldest first
    cdef buffer.Buffer held_text
    cdef bint held_new                  # since the last write
    cdef bint held_settled              # one of those held since then is about something settled
    cdef bint settled_written           # one of the others is, and no sync for it has begun
    cdef uint64_t writes                # times that the journal was written
    cdef uint64_t safe                  # how many of them are safely on disk

    cdef bint unsafe(self) noexcept
    cdef int hold_reply(self, Connection c, Consumer consumer, const char* id, size_t size) except -1
    cdef int confirm_id(self, Connection c, const char* id, size_t size) except -1
    cdef int write(self, Connection c, const char* text, size_t size) except -1
    cdef char* large_block(self) except NULL
    cdef void drop_out(self, Connection c) noexcept


cdef inline bint choked(Output core, Connection c) noexcept:
    """Has this client let so many replies pile up, beyond what deliveries alone may, that it should not be heard?"""
    cdef size_t most
    if waiting(c) > 2 * core.high_water + core.max_line:
        return True
    if core.memory.used < core.max_memory:
        return False
    most = MANY if core.memory.used < core.ceiling else 0
    if c.held_bytes <= MANY and (waiting(c) <= most or c.replies <= most):
        return False
    core.squeezed = True
    return True


cdef inline bint unheard(Output core, Connection c) noexcept:
    """Are its lines to wait?"""
    return c.blocked or choked(core, c)


cdef inline char* out_room(Output core, Connection c, size_t size) except NULL:
    """Where the next `size` bytes for this connection go; the caller then adds to `out.tail` what it has written."""
    if c.out.data == NULL and c.large:
        c.out = buffer.Buffer(core.large_block(), 0, 0, LARGE)
    if not c.dirty:
        c.dirty = True
        core.dirty_connections.append(c)
    return buffer.reserve(&c.out, &core.memory, size)
