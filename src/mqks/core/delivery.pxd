"""Messages from queues to consumers: see delivery.pyx."""

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint64_t

from mqks.core.parts cimport Connection, Queue
from mqks.core.settling cimport Settler


cdef class Deliverer(Settler):
    cdef readonly uint64_t delivered
    cdef uint64_t quota                 # deliveries stop at so much effort, and go on in the next turn
    cdef list serving                   # the queues of this round
    cdef Py_ssize_t served              # how many of them have had their turn
    cdef list roomy                     # connections that read history and have room again
    cdef readonly uint64_t rooms        # how often there was one
    cdef bint can_resume                # one whose bytes wait has read its replies
    cdef readonly bint stalled          # the disk did not take all of the last turn: nothing is delivered until it does
    cdef dict unserved                  # queues that found no memory for deliveries, as keys
    cdef dict waiting                   # start of a segment that is being read from disk → queues that wait for it

    cdef void begin_turn(self) noexcept
    cdef bint begin_round(self) except -1
    cdef Queue serve_next(self)
    cdef int serve(self, Queue q) except -1
    cdef int serve_again(self) except -1
    cdef bint at_hand(self, Queue q) except -1
    cdef int tell_due(self, Connection c) except -1
    cdef int ease(self) except -1
    cdef int took(self, Connection c, size_t size) except -1


cdef inline bint has_more_to_deliver(Deliverer core) noexcept:
    return PyList_GET_SIZE(core.dirty_queues) > 0 or core.served < PyList_GET_SIZE(core.serving)
