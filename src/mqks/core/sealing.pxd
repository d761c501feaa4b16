"""The TLS of a connection, as whoever moves its bytes sees it: see sealing.pyx."""

from mqks.core.parts cimport Connection, waiting

cdef enum:
    HEADER = 5                  # bytes before those of a record: its kind, its version, its size
    RECORD = 16 * 1024          # most bytes that TLS seals as one: nobody can open a part of them
    LONGEST = RECORD + 2048     # so long they are sealed, at most


cdef class Sealed:
    cdef object tls             # seals and opens, and moves nothing (server/tls.py)
    cdef unsigned char header[HEADER]       # of the record that is coming
    cdef size_t seen            # bytes of it that have come
    cdef size_t lacking         # bytes of the record that have not
    cdef bint whole             # it has come
    cdef bint established       # the handshake is done
    cdef bint ended             # the client has said that it sends no more
    cdef bint silent            # we have said so
    cdef bint words             # TLS itself has something to say, which goes after the record
    cdef bytes record           # is leaving; None: nothing is
    cdef size_t left            # bytes of it that have left
    cdef size_t size            # of the connection's own bytes, that are in it

    cdef size_t put(self, char* data, size_t size) except 0
    cdef bytes open(self)
    cdef int listen(self) except -1
    cdef bint speaks(self) noexcept
    cdef bint has_more(self, Connection c) noexcept
    cdef ssize_t move(self, Connection c) except -2
    cdef int seal(self, Connection c) except -1
    cdef int end(self, Connection c) except -1


cdef inline bint has_more(Connection c) noexcept:
    """Is there something that can be sent now?"""
    return waiting(c) != 0 if c.tls is None else (<Sealed>c.tls).has_more(c)


cdef inline bint amid_record(Connection c) noexcept:
    """Has a record begun to come and not ended?"""
    return c.tls is not None and (<Sealed>c.tls).seen != 0


cdef inline bint has_ended(Connection c) noexcept:
    """Has its client said by TLS that it sends no more?"""
    return c.tls is not None and (<Sealed>c.tls).ended


cdef inline bint speaks(Connection c) noexcept:
    return c.tls is not None and (<Sealed>c.tls).speaks()
