"""Connections, consumers and queues: see parts.pyx. What is asked for each message is here, to be inlined."""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.buffer cimport Buffer
from mqks.core.fifo cimport Fifo
from mqks.core.heap cimport Heap
from mqks.core.unsettled cimport Ring

cdef enum Dialect:
    MQKS = 0
    SEVX = 1


cdef class Connection:
    cdef size_t high_water              # with so much waiting, its consumers have no room
    cdef public int fd                  # for whoever moves the bytes; the core does not use it
    cdef Buffer partial                 # the beginning of a line whose end has not come yet
    cdef bint skipping                  # a line that is too long goes on
    cdef Buffer unread                  # bytes that wait until its client has read more of its replies
    cdef Buffer out
    cdef bint large                     # its last out-buffer was a large one, so begin with a large one
    cdef readonly uint64_t received
    cdef readonly uint64_t sent
    cdef public bint publishes          # has published, or tried to
    cdef readonly bint gone
    cdef readonly int held              # answers to it that wait for the disk: replies in groups, histories
    cdef bint dirty                     # stands in Output.dirty_connections
    cdef int interest                   # what the poller waits for on fd
    cdef bint ending                    # sends no more, gets what is pending, then is closed
    cdef bint paused                    # not read, for lack of memory
    cdef bint trickle                   # may be read once, whatever the memory
    cdef readonly dict consumers        # id → Consumer; None until the first one
    cdef Consumer recent                # the consumer that the last ack was for
    cdef list settling                  # auto-ack consumers with deliveries that have not left yet
    cdef list starved                   # consumers that were refused a message because `out` was full
    cdef public bint reads_history      # to be told of when it has room again
    cdef dict due                       # consumers whose --update found no room, as keys


@cython.final
cdef class Consumer:
    cdef readonly bytes id
    cdef readonly Connection connection
    cdef readonly Queue queue
    cdef bytes prefix                   # "{id} ok "
    cdef readonly int dialect
    cdef readonly bint manual_ack
    cdef readonly size_t prefetch       # 0: no limit
    cdef readonly bint paused           # by its own wish
    cdef readonly uint64_t delivered
    cdef Ring ring
    cdef bint settling                  # stands in connection.settling
    cdef bint starved                   # stands in connection.starved
    cdef bint gone                      # takes no more messages
    cdef bint dismissed                 # since its queue was deleted
    cdef bint unconfirmed               # its `ok` waits for the disk, and comes before its first message


cdef class Queue:
    cdef Fifo ready
    cdef Heap returned
    cdef dict retries                   # position → count, for those above what fits beside the position
    cdef readonly list consumers        # in the order in which they joined
    cdef Py_ssize_t turn                # whose turn it is: index after the one served last
    cdef uint64_t sequence
    cdef uint64_t stamp                 # position of the last message put here: a message comes once
    cdef bint dirty                     # stands in Router.dirty_queues
    cdef bint waits                     # for a message to be read from disk
    cdef bint progressed                # stands in Router.progressed
    cdef Buffer progress                # what the journal has to know: items settled, or retried
    cdef public uint64_t birth          # position of the line that made it: no other queue has the same, whatever its name
    cdef readonly bint gone
    cdef readonly size_t unsettled
    cdef readonly uint64_t published
    cdef readonly uint64_t delivered
    cdef readonly uint64_t acked
    cdef readonly uint64_t rejected


cdef inline size_t waiting(Connection c) noexcept:
    """Bytes that were said or delivered and have not left."""
    return c.out.tail - c.out.head


cdef inline bint has_room(Consumer c) noexcept:
    return (waiting(c.connection) < c.connection.high_water
            and (c.prefetch == 0 or c.ring.live < c.prefetch) and not c.paused and not c.unconfirmed)
