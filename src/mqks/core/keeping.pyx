"""The journal as it is written: lines as batches, then what became of them as progress.

Here it is only gathered; whoever has the files writes it (see `Journal` in callbacks.py). What the disk did not take comes again, and until it
is written nothing is delivered.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memchr, memcmp

from mqks.core.confirming cimport Confirmations
from mqks.core.crc cimport crc32
from mqks.core.progress cimport Progress
from mqks.core.ready cimport Ready
from mqks.core.tail cimport HEADER, Tail
from mqks.core.text cimport number


@cython.final
cdef class Persistence:
    def __init__(self, Tail log, Ready ready, Progress progress, Confirmations confirmations, clock):
        self.log = log
        self.ready = ready
        self.progress = progress
        self.confirmations = confirmations
        self.clock = clock

    def open_journal(
        self, journal, uint64_t position, uint32_t previous, bytes first_line, *, size_t segment_size, size_t tail_memory,
        size_t spill_after,
    ):
        """From now on the log has files, which begin at this position with a new one. What was replayed stays."""
        self.journal = journal
        self.log.open_files(position, previous, first_line, segment_size, tail_memory)
        self.synced = position
        self.ready.spill_after = spill_after

    @property
    def unwritten(self):
        """Does the journal lack something?"""
        return self.log.journaled and (self.log.end != self.log.written or PyList_GET_SIZE(self.progress.queues) > 0)

    def mark(self):
        """An empty batch, for whoever reads the files: its header tells how far the disk has all."""
        if self.log.batch_count == 0:
            self.log.make_room(0)

    def write_out(self):
        write_out(self)

    cdef int write_now(self) except -1:
        """Messages first, then progress, which may depend on them. Both, or the core is stalled until both are written."""
        cdef Confirmations confirmations = self.confirmations
        if self.log.batch_count:
            self.log.seal(self.clock.new_dtid(), self.synced)
        if self.log.end != self.log.written:
            if not self.journal.write(self.log.unwritten()):
                self.stalled = True
                return 0
            self.log.all_written()
        if PyList_GET_SIZE(self.progress.queues) > 0 or confirmations.settled or self.stalled:
            self.stalled = not self.journal.write_progress(self.progress.gather())
            if not self.stalled:
                confirmations.settled_written = confirmations.settled_written or confirmations.settled
                confirmations.settled = False
            elif confirmations.settled:
                return 0                # its reply, and those after it, wait until it is written
        confirmations.writes += 1
        confirmations.new = False
        if not self.heeded or confirmations.held:
            self.heeded = True
            self.journal.wrote()
        return 0


def first_bad(bytes data, uint64_t position):
    """Where in this part of the journal the first batch begins that is not valid; its size: all are."""
    cdef const char* text = PyBytes_AS_STRING(data)
    cdef size_t size = PyBytes_GET_SIZE(data)
    cdef size_t at = 0
    cdef size_t batch
    cdef uint32_t crc
    if size > HEADER and memcmp(text + 24, b" segment ", 9) == 0:
        at = <const char*>memchr(text, 10, size) + 1 - text if memchr(text, 10, size) != NULL else size
    while at < size:
        if size - at < HEADER or number(text + at + 31, 20, 10) != position + at:
            return at
        batch = HEADER + number(text + at + 52, 10, 10)
        if batch > size - at:
            return at
        crc = crc32(crc32(crc32(0, text + at, 93), b"00000000", 8), text + at + 101, batch - 101)
        if crc != number(text + at + 93, 8, 16):
            return at
        at += batch
    return size
