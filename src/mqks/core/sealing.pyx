"""Between a connection's bytes and its socket, where there is TLS: what has left, exactly.

TLS seals many bytes as one record, which its reader can open only when it is whole. So the connection's bytes in it have left
when the last byte of the record was given to the kernel, and not before: what a client was not given returns to its queue. One
record is sealed at a time, when the one before has left; the rest waits unsealed in the connection's own buffer, where it is
counted. Nothing is read or decided here; the poller says when.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from libc.string cimport memcpy

from mqks.core.parts cimport Connection, waiting

cdef extern from "sys/socket.h" nogil:
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL


cdef class Sealed:
    def __cinit__(self, tls):
        self.tls = tls

    cdef size_t put(self, char* data, size_t size) except 0:
        """Take what the client has sent, up to the end of a record; answers how much that was. TLS is asked only for records
        that are whole: to be told of each piece that it lacks the rest would cost more than to open it."""
        cdef size_t taken = min(size, HEADER - self.seen)
        memcpy(self.header + self.seen, data, taken)
        self.seen += taken
        self.whole = False
        if self.seen == HEADER:
            if taken:
                self.lacking = (self.header[3] << 8) | self.header[4]
            self.whole = self.lacking <= size - taken or self.lacking > LONGEST
            if self.whole:
                self.seen = 0
            size = min(size - taken, self.lacking)
            self.lacking -= size
            taken += size
        self.tls.put(PyMemoryView_FromMemory(data, taken, PyBUF_READ))
        return taken

    cdef bytes open(self):
        """What is in the record that has come; nothing: TLS itself was meant. None: it was the last one."""
        cdef bytes plain = self.tls.open()
        if not self.established:
            self.established = self.tls.established
        if plain is None:
            self.ended = True
        return plain

    cdef int listen(self) except -1:
        """After what was opened: has TLS itself something to say?"""
        self.words = self.tls.has_words
        return 0

    cdef bint speaks(self) noexcept:
        """Does TLS itself wait to be heard? One who does not take it is not read: it could be made to speak for ever."""
        return self.words or (self.record is not None and self.size == 0)

    cdef bint has_more(self, Connection c) noexcept:
        return self.record is not None or self.words or (self.established and waiting(c) > 0)

    cdef ssize_t move(self, Connection c) except -2:
        """Give the kernel what it takes. Answers how many bytes of the connection's have left by that, or -1 and errno."""
        cdef ssize_t sent
        if self.record is None:
            self.seal(c)
        sent = send(c.fd, PyBytes_AS_STRING(self.record) + self.left, PyBytes_GET_SIZE(self.record) - self.left,
                    MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent < 0:
            return -1
        self.left += sent
        if self.left < <size_t>PyBytes_GET_SIZE(self.record):
            return 0
        sent = self.size
        self.record = None
        self.left = self.size = 0
        return sent

    cdef int seal(self, Connection c) except -1:
        self.words = False
        if self.established and waiting(c):
            self.size = min(waiting(c), <size_t>RECORD)
            self.record = self.tls.seal(PyMemoryView_FromMemory(c.out.data + c.out.head, self.size, PyBUF_READ))
        else:
            self.record = self.tls.take()
        return 0

    cdef int end(self, Connection c) except -1:
        """Say, as far as it goes, that no more comes. Within a record nothing can be said."""
        cdef bytes words
        if not self.silent and self.size == 0 and self.left == 0:
            words = (self.record or b"") + self.tls.end()
            send(c.fd, PyBytes_AS_STRING(words), PyBytes_GET_SIZE(words), MSG_DONTWAIT | MSG_NOSIGNAL)
        self.silent = True
        return 0
