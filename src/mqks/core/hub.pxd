"""Connections, consumers and queues, and the core that moves messages between them: see hub.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.buffer cimport Buffer
from mqks.core.events cimport Binding, Events
from mqks.core.fifo cimport Fifo
from mqks.core.heap cimport Heap
from mqks.core.memory cimport Memory
from mqks.core.tail cimport Tail
from mqks.core.unsettled cimport Ring

cdef enum Dialect:
    MQKS = 0
    SEVX = 1

cdef enum Flaw:
    NONE_FOUND = 0
    TOO_LONG = 1
    CONTROL = 2


cdef class Connection:
    cdef Core core
    cdef public int fd                # for whoever moves the bytes; the core does not use it
    cdef Buffer partial                 # the beginning of a line whose end has not come yet
    cdef bint skipping                  # a line that is too long goes on
    cdef Buffer out
    cdef bint large                     # its last out-buffer was a large one, so begin with a large one
    cdef readonly uint64_t received
    cdef readonly uint64_t sent
    cdef readonly bint publishes        # has published
    cdef readonly bint gone
    cdef bint dirty                     # stands in Core.dirty_connections
    cdef int interest                   # what the poller waits for on fd
    cdef bint ending                    # sends no more, gets what is pending, then is closed
    cdef bint paused                    # not read, for lack of memory
    cdef bint trickle                   # may be read once, whatever the memory
    cdef readonly dict consumers        # id → Consumer; None until the first one
    cdef Consumer recent                # the consumer that the last ack was for
    cdef list settling                  # auto-ack consumers with deliveries that have not left yet
    cdef list starved                   # consumers that were refused a message because `out` was full
    cdef dict due                       # consumers whose --update found no room, as keys


cdef inline size_t waiting(Connection c) noexcept:
    """Bytes that were said or delivered and have not left."""
    return c.out.tail - c.out.head


@cython.final
cdef class Consumer:
    cdef readonly bytes id
    cdef readonly Connection connection
    cdef readonly Queue queue
    cdef bytes prefix                   # "{id} ok "
    cdef readonly int dialect
    cdef readonly bint manual_ack
    cdef readonly size_t prefetch       # 0: no limit
    cdef readonly uint64_t delivered
    cdef Ring ring
    cdef bint settling                  # stands in connection.settling
    cdef bint starved                   # stands in connection.starved
    cdef bint gone                      # takes no more messages

    cdef bint has_room(self) noexcept


cdef class Queue:
    cdef Fifo ready
    cdef Heap returned
    cdef dict retries                   # position → count, for those above what fits beside the position
    cdef readonly list consumers        # in the order in which they joined
    cdef Py_ssize_t turn                # whose turn it is: index after the one served last
    cdef uint64_t sequence
    cdef uint64_t stamp                 # position of the last message put here: a message comes once
    cdef bint dirty                     # stands in Core.dirty_queues
    cdef readonly bint gone
    cdef readonly size_t unsettled
    cdef readonly uint64_t published
    cdef readonly uint64_t delivered
    cdef readonly uint64_t acked
    cdef readonly uint64_t rejected


@cython.final
cdef class Core:
    cdef Memory memory
    cdef readonly Tail tail
    cdef readonly Events events
    cdef object handler
    cdef uint64_t seed
    cdef readonly size_t max_line
    cdef readonly size_t max_memory
    cdef readonly size_t high_water
    cdef list everything                # queues that take every MQKS message
    cdef int inspectors                 # how many patterns look into the data of every event
    cdef list dirty_queues
    cdef list dirty_connections
    cdef char** spare                   # large out-buffers at rest
    cdef int spares
    cdef readonly uint64_t requests     # lines that went to the handler
    cdef readonly uint64_t published
    cdef readonly uint64_t delivered
    cdef readonly uint64_t acked
    cdef readonly uint64_t rejected

    cdef int take_bytes(self, Connection c, char* p, size_t size) except -1
    cdef int take_line(self, Connection c, char* p, char* end, bint clean) except -1
    cdef bint publish_line(self, Connection c, char* p, char* after_id, char* end) except -1
    cdef bint ack_line(self, Connection c, char* after_id, char* end) except -1
    cdef int keep_partial(self, Connection c, char* p, size_t size) except -1
    cdef int route(self, Binding binding, uint64_t position, char* event, char* after_event, char* end) except -1
    cdef size_t put(self, Queue q, uint64_t position) except? 9
    cdef void soil(self, Queue q) noexcept
    cdef int serve(self, Queue q) except -1
    cdef Consumer next_with_room(self, Queue q)
    cdef int give(self, Queue q, Consumer c, uint64_t item, uint64_t sequence) except -1
    cdef char* out_room(self, Connection c, size_t size) except NULL
    cdef int write(self, Connection c, const char* text, size_t size) except -1
    cdef int took(self, Connection c, size_t size) except -1
    cdef int settle_sent(self, Consumer c) except -1
    cdef int settle(self, Consumer c, uint64_t number) except -1
    cdef bint ack_id(self, Consumer c, const char* id, size_t size) except -1
    cdef int return_to_queue(self, Consumer c, uint64_t number, int more) except -1
    cdef uint64_t retried(self, Queue q, uint64_t item, int more) except? 9
    cdef object retry_of(self, Queue q, uint64_t item)
    cdef char* large_block(self) except NULL
    cdef void drop_out(self, Connection c) noexcept
    cdef bint _has_left(self, Consumer c, uint64_t number) noexcept
    cdef int _to_tail(self, Consumer c, uint64_t number) except -1
    cdef int return_unsettled(self, Consumer c, bint disconnected) except -1
    cdef int return_left(self, Consumer c, bint only_left) except -1
    cpdef bint choked(self, Connection c)
    cpdef bint deliver(self) except -1
