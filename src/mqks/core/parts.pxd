"""Connections, consumers and queues: see parts.pyx. What is asked for each message is here, to be inlined."""

cimport cython
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint64_t

from mqks.core.buffer cimport Buffer
from mqks.core.fifo cimport Fifo
from mqks.core.heap cimport Heap
from mqks.core.memory cimport Memory
from mqks.core.unsettled cimport Ring

cdef extern from *:
    int lowest_bit "__builtin_ctzll" (unsigned long long word) noexcept nogil

cdef enum Dialect:
    MQKS = 0
    SEVX = 1


cdef class Connection:
    cdef size_t high_water              # with so much waiting, its consumers have no room
    cdef public bint inside             # one of this process's own: its bytes are not counted
    cdef public bint stranger           # has not said who it is: its lines are short, and the handler sees each of them
    cdef public object granted          # a set of events that it may publish; the handler is asked about others. None: all
    cdef readonly int blocked           # things that have to happen before it is heard again
    cdef readonly uint64_t lines        # that it has sent and ended, blank ones aside
    cdef public int64_t budget          # lines that it may send before the handler is asked
    cdef public int fd                  # for whoever moves the bytes; the core does not use it
    cdef readonly object tls            # likewise; None: its bytes go as they are
    cdef Buffer partial                 # the beginning of a line whose end has not come yet
    cdef bint skipping                  # a line that is too long goes on
    cdef Buffer unread                  # bytes that wait: until it has read its replies, or is unblocked, or has its turn
    cdef bint waits                     # stands in DeferredInput.connections
    cdef Buffer out
    cdef size_t replies                 # bytes of `out` that are no deliveries, or more: those that have left may count as well
    cdef bint large                     # its last out-buffer was a large one, so begin with a large one
    cdef readonly uint64_t received
    cdef readonly uint64_t sent
    cdef public bint publishes          # has published, or tried to
    cdef public bint early_only         # all its requests are in the early spec, which has no --update: it gets none
    cdef readonly bint gone
    cdef readonly int held              # answers to it that wait for the disk: replies in groups, histories
    cdef size_t held_bytes              # of these replies
    cdef bint dirty                     # stands in Output.dirty_connections
    cdef int interest                   # what the poller waits for on fd
    cdef readonly bint peer_closed      # its peer has closed, at least for sending: its consumers get no more messages
    cdef bint returns_known             # since then each of its consumers has `returns`
    cdef bint unreachable               # its peer has closed for both directions: output is dropped
    cdef readonly uint64_t closing      # the number of its close, if unsettled messages of it are to return; else 0
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
    cdef public tuple stated            # flags of its request that an update repeats; the handler's
    cdef readonly uint64_t delivered
    cdef Ring ring
    cdef bint settling                  # stands in connection.settling
    cdef bint starved                   # stands in connection.starved
    cdef readonly bint gone             # takes no more messages
    cdef bint dismissed                 # since its queue was deleted
    cdef bint unconfirmed               # its `ok` waits for the disk, and comes before its first message
    cdef bint returns                   # its peer has closed, and it has unsettled messages: counted in Queue.returning
    cdef bint succeeds                  # stands in Queue.successors: gets no message yet
    cdef uint64_t closes                # the number of the last close before it joined
    cdef Py_ssize_t place               # among the consumers of its queue; -1: it has left


@cython.final
cdef class Consumers:
    cdef list places                    # Consumer, or None for one that left, in the order in which they joined
    cdef Py_ssize_t count               # of consumers
    cdef Py_ssize_t turn                # whose turn it is: the place after the one served last
    cdef uint64_t* candidates           # one bit for each place; a consumer whose bit is 0 has no room
    cdef Py_ssize_t words               # of candidates
    cdef uint64_t few                   # the candidates, while one word is enough

    cdef int add(self, Consumer c, Memory* memory) except -1
    cdef int remove(self, Consumer c, Memory* memory) except -1
    cdef int close_gaps(self, Memory* memory) except -1
    cdef int set_words(self, Py_ssize_t words, Memory* memory) except -1


cdef class Queue:
    cdef Fifo ready
    cdef Heap returned
    cdef dict retries                   # position → count, for those above what fits beside the position
    cdef readonly Consumers consumers
    cdef dict leaving                   # consumers that have left and have deliveries on their way, as keys; None until the first one
    cdef dict returning                 # connection whose peer has closed → consumers with unsettled messages; None until the first
    cdef dict successors                # consumers that joined after such a close, as keys; None until the first one
    cdef int suspended                  # reasons why it is not served for now
    cdef uint64_t sequence
    cdef uint64_t stamp                 # position of the last message put here: a message comes once
    cdef bint dirty                     # stands in Ready.dirty_queues
    cdef bint waits                     # for a message to be read from disk
    cdef bint limited                   # has limits, which are at the end: most queues have none, and none is looked at
    cdef bint progressed                # stands in Progress.queues
    cdef Buffer progress                # what the journal has to know: items settled, or retried
    cdef public uint64_t birth          # position of the line that made it: no other queue has the same, whatever its name
    cdef readonly bint gone
    cdef readonly size_t unsettled
    cdef readonly uint64_t published
    cdef readonly uint64_t delivered
    cdef readonly uint64_t acked
    cdef readonly uint64_t rejected
    cdef readonly uint64_t retried      # times that a message of it was rejected or returned
    cdef readonly uint64_t retrying     # how often that had happened to one of them, at most, since all was calm
    cdef readonly size_t max_length     # messages, ready and unsettled; 0: no limit
    cdef readonly uint64_t max_bytes    # of their lines; 0: no limit, and they are not counted
    cdef readonly bint drops_oldest     # when it is full; else whatever would go into it is refused
    cdef readonly uint64_t bytes
    cdef readonly uint64_t dropped      # messages, since it was full
    cdef bint exceeds                   # may be longer than its limits by more than what comes: they were not always so low
    cdef public bint overflows          # the handler knows that messages of it are dropped


cdef inline size_t waiting(Connection c) noexcept:
    """Bytes that were said or delivered and have not left."""
    return c.out.tail - c.out.head


cdef inline bint has_room(Consumer c) noexcept:
    return (waiting(c.connection) < c.connection.high_water
            and (c.prefetch == 0 or c.ring.live < c.prefetch) and not c.paused and not c.unconfirmed and not c.succeeds)


cdef inline Py_ssize_t next_candidate(Consumers consumers, Py_ssize_t place) noexcept:
    """The first place at or after this one whose consumer may have room; -1: there is none."""
    cdef Py_ssize_t word = place >> 6
    cdef uint64_t bits
    if word >= consumers.words:
        return -1
    bits = consumers.candidates[word] >> (place & 63) << (place & 63)
    while bits == 0:
        word += 1
        if word == consumers.words:
            return -1
        bits = consumers.candidates[word]
    return (word << 6) + lowest_bit(bits)


cdef inline void set_candidate(Consumers consumers, Py_ssize_t place) noexcept:
    consumers.candidates[place >> 6] |= <uint64_t>1 << (place & 63)


cdef inline void become_candidate(Consumer c) noexcept:
    """It may have room, unless it has left."""
    if c.place >= 0:
        set_candidate(c.queue.consumers, c.place)


cdef inline void clear_candidate(Consumers consumers, Py_ssize_t place) noexcept:
    consumers.candidates[place >> 6] &= ~(<uint64_t>1 << (place & 63))


cdef inline Consumer last_served(Consumers consumers):
    """None: it has left, or none was served yet."""
    cdef Py_ssize_t place = consumers.turn - 1
    return <Consumer>PyList_GET_ITEM(consumers.places, place) if 0 <= place < PyList_GET_SIZE(consumers.places) else None


cdef inline size_t length(Queue q) noexcept:
    """Messages that the queue has, also those that consumers have not settled."""
    return q.ready.count + q.returned.count + q.unsettled


cdef inline bint is_over(Queue q) noexcept:
    """Has it more than its limits allow?"""
    return (q.max_length != 0 and length(q) > q.max_length) or (q.max_bytes != 0 and q.bytes > q.max_bytes)


cdef inline bint refuses(Queue q, size_t size) noexcept:
    """Is there no place in it for a message of so many bytes, and not to be made? One that drops its oldest refuses nothing: what is
    larger than all that it may have goes itself, after all others."""
    return q.limited and not q.drops_oldest and (
        (q.max_length != 0 and length(q) >= q.max_length) or (q.max_bytes != 0 and q.bytes + size > q.max_bytes)
    )
