"""Input that waits: of clients that have not read their replies, are blocked, or had their turn.

Only who waits is known here; the bytes are the connection's own, and the parser takes them (parsing.pyx).
"""

cimport cython

from mqks.core.output cimport Output, unheard
from mqks.core.parts cimport Connection
from mqks.core.settling cimport Acks

cdef enum:
    AT_ONCE = 256               # connections whose bytes have waited are heard in one turn


@cython.final
cdef class DeferredInput:
    def __init__(self, Output output, Acks acks):
        self.output = output
        self.acks = acks
        self.connections = {}

    cpdef list resumable(self):
        """Those whose bytes wait and who have read their replies: at the beginning of a turn each is to `resume`."""
        cdef dict waited = self.connections
        cdef list ready = []
        cdef Connection c
        self.can_resume = False
        if waited:
            self.connections = {}
            for c in waited:
                if unheard(self.output, c):
                    self.connections[c] = None
                    self.acks.review_returning(c)
                elif len(ready) == AT_ONCE:
                    self.connections[c] = None
                    self.can_resume = True
                else:
                    c.waits = False
                    ready.append(c)
        return ready

    cdef int postpone(self, list waited) except -1:
        """These were to be resumed, and there was no time: they come before all others."""
        cdef dict others = self.connections
        cdef Connection c
        self.connections = {}
        for c in waited:
            if not c.gone:
                c.waits = True
                self.connections[c] = None
        self.connections.update(others)
        self.can_resume = True
        return 0

    cdef int hold_back(self, Connection c) except -1:
        """Its bytes wait, or those do that were not read; once however often it is said, since each time costs when it goes on."""
        if not c.waits:
            c.waits = True
            self.connections[c] = None
        if not unheard(self.output, c):
            self.can_resume = True
        return self.acks.review_returning(c)

    cdef int detach(self, Connection c) except -1:
        self.connections.pop(c, None)
        return 0
