"""Messages from queues to consumers: see delivery.pyx."""

cimport cython
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint64_t

from mqks.core.account cimport Account, Work
from mqks.core.deferred cimport DeferredInput
from mqks.core.keeping cimport Persistence
from mqks.core.memory cimport Memory
from mqks.core.output cimport Output
from mqks.core.parts cimport Connection, Queue
from mqks.core.progress cimport Progress
from mqks.core.ready cimport Ready
from mqks.core.settling cimport Acks
from mqks.core.tail cimport Tail


@cython.final
cdef class Delivery:
    cdef Account account
    cdef Memory* memory                 # of the account
    cdef Work work
    cdef Tail log
    cdef Ready ready
    cdef Progress progress
    cdef Output output
    cdef Acks acks
    cdef Persistence persistence
    cdef DeferredInput deferred
    cdef object renderer                # makes the text that is not the line's own: see callbacks.py
    cdef object files                   # the journal's: likewise
    cdef uint64_t seed                  # of the hashes of message ids
    cdef readonly uint64_t delivered
    cdef readonly uint64_t bytes_out    # given to clients
    cdef uint64_t quota                 # deliveries stop at so much effort, and go on in the next turn
    cdef list serving                   # the queues of this round
    cdef Py_ssize_t served              # how many of them have had their turn
    cdef list roomy                     # connections that read history and have room again
    cdef readonly uint64_t rooms        # how often there was one
    cdef dict unserved                  # queues that found no memory for deliveries, as keys
    cdef dict waiting                   # start of a segment that is being read from disk → queues that wait for it

    cdef void begin_turn(self) noexcept
    cdef bint begin_round(self) except -1
    cdef Queue serve_next(self)
    cdef int serve(self, Queue q) except -1
    cdef int serve_again(self) except -1
    cdef bint at_hand(self, Queue q) except -1
    cpdef int on_peer_closed(self, Connection c, bint unreachable) except -1
    cdef int ease(self) except -1
    cdef int took(self, Connection c, size_t size) except -1


cdef inline bint has_more_to_deliver(Delivery delivery) noexcept:
    return PyList_GET_SIZE(delivery.ready.dirty_queues) > 0 or delivery.served < PyList_GET_SIZE(delivery.serving)
