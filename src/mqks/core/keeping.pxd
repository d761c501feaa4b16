"""The journal as it is written: see keeping.pyx."""

cimport cython
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint64_t

from mqks.core.confirming cimport Confirmations
from mqks.core.progress cimport Progress
from mqks.core.ready cimport Ready
from mqks.core.tail cimport Tail


@cython.final
cdef class Persistence:
    cdef Tail log
    cdef Ready ready
    cdef Progress progress
    cdef Confirmations confirmations
    cdef object clock                   # tells the time as batches have it: see callbacks.py
    cdef object journal                 # writes what is given to it; None: there is none
    cdef public bint heeded             # it will look at what was written, also if it is not told again
    cdef public uint64_t synced         # the position up to which the journal is safely on disk
    cdef readonly bint stalled          # the disk did not take all of the last turn: nothing is delivered until it does

    cdef int write_now(self) except -1


cdef inline int write_out(Persistence persistence) except -1:
    """What has happened since the last time goes to the journal, if there is one."""
    cdef Tail log = persistence.log
    if log.journaled and (
        log.end != log.written or PyList_GET_SIZE(persistence.progress.queues) > 0 or persistence.confirmations.new
        or persistence.stalled
    ):
        persistence.write_now()
    return 0
