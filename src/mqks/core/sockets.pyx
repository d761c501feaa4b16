"""Bytes between plain TCP sockets and the core: one epoll of our own, so that a turn is what it says.

A turn reads every socket that is ready, delivers, and sends. The epoll's own descriptor is readable when a turn is due, and
that is all that the event loop above needs to know. Only here are sockets read, written, paused and closed.

Back-pressure: one who does not read its replies is not read; near the memory limit one who only publishes is not read, but for a
chunk now and then, so that nobody hangs: beyond the limit its publishes get errors.
"""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc

from mqks.core.hub cimport Connection, Core

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        void* ptr
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int maximum, int timeout)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    int EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL

cdef extern from "unistd.h" nogil:
    int close_fd "close" (int fd)

cdef extern from *:
    """
    #include <stdlib.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    static void mqks_trim(void) { malloc_trim(0); }
    #else
    static void mqks_trim(void) {}
    #endif
    """
    void trim "mqks_trim" () noexcept nogil

cdef enum:
    CHUNK = 128 * 1024          # read at a time
    EVENTS = 256                # sockets read in one turn
    ROUNDS = 8                  # of deliver and send in one turn, while sockets take all and queues have more


def give_memory_back():
    """Return to the system what was freed in small pieces."""
    trim()


cdef class Poller:
    cdef int epoll
    cdef Core core
    cdef object closed              # called with each connection whose socket was closed here
    cdef char* chunk
    cdef epoll_event events[EVENTS]
    cdef list paused                # for memory
    cdef list departed              # closed in this turn; the kernel's list of events may still name them
    cdef readonly bint draining

    def __cinit__(self, Core core, closed):
        self.core = core
        self.closed = closed
        self.paused = []
        self.departed = []
        self.chunk = <char*>malloc(CHUNK)
        if self.chunk == NULL:
            raise MemoryError
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, "epoll_create1 failed")

    def __dealloc__(self):
        if self.epoll >= 0:
            close_fd(self.epoll)
        free(self.chunk)

    def fileno(self):
        return self.epoll

    @property
    def has_paused(self):
        return bool(self.paused)

    def add(self, Connection c):
        """Read and write this connection's socket, which from now on is the poller's to close."""
        cdef epoll_event event
        event.events = c.interest = EPOLLIN
        event.data.ptr = <void*>c
        if epoll_ctl(self.epoll, EPOLL_CTL_ADD, c.fd, &event) < 0:
            raise OSError(errno, "epoll_ctl failed")

    def close(self, Connection c):
        if c.fd < 0:
            return
        epoll_ctl(self.epoll, EPOLL_CTL_DEL, c.fd, NULL)
        close_fd(c.fd)
        c.fd = -1
        self.departed.append(c)
        self.closed(c)

    def turn(self):
        """Read, deliver, send. True: there is more to do, come back soon."""
        cdef int count = epoll_wait(self.epoll, self.events, EVENTS, 0)
        cdef int i
        cdef Connection c
        for i in range(count):
            c = <Connection>self.events[i].data.ptr
            if c.fd < 0:
                continue
            if self.events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP):
                self.read(c, self.events[i].events & (EPOLLERR | EPOLLHUP) != 0)
            if self.events[i].events & EPOLLOUT and c.fd >= 0:
                self.flush(c)
        for i in range(ROUNDS):
            self.core.deliver()
            self.flush_dirty()
            if not self.core.dirty_queues:
                break
        if self.departed:
            self.departed = []
        return bool(self.core.dirty_queues)

    def drain(self, list connections):
        """Read nothing more; go on sending what is buffered."""
        cdef Connection c
        self.draining = True
        for c in connections:
            self.want(c, c.interest & ~EPOLLIN)

    def resume(self, bint trickle):
        """Read those again that were paused for memory, if there is some again, or one chunk of each (trickle)."""
        cdef Connection c
        cdef list paused = self.paused
        if self.draining or not (trickle or not self.near_limit()):
            return
        self.paused = []
        for c in paused:
            c.paused = False
            if c.fd >= 0:
                c.trickle = trickle
                self.want(c, c.interest | EPOLLIN)

    cdef bint near_limit(self) noexcept:
        return self.core.memory.used >= self.core.max_memory - self.core.max_memory // 10

    cdef int want(self, Connection c, int interest) except -1:
        cdef epoll_event event
        if interest == c.interest:
            return 0
        c.interest = event.events = interest
        event.data.ptr = <void*>c
        if epoll_ctl(self.epoll, EPOLL_CTL_MOD, c.fd, &event) < 0:
            raise OSError(errno, "epoll_ctl failed")
        return 0

    cdef int read(self, Connection c, bint hung_up) except -1:
        cdef ssize_t size
        if not hung_up:
            if self.draining or self.core.choked(c):
                return self.want(c, c.interest & ~EPOLLIN)
            if c.publishes and not c.consumers and not c.trickle and self.near_limit():
                c.paused = True
                self.paused.append(c)
                return self.want(c, c.interest & ~EPOLLIN)
        c.trickle = False
        size = recv(c.fd, self.chunk, CHUNK, MSG_DONTWAIT)
        if size > 0:
            try:
                self.core.take_bytes(c, self.chunk, size)
            except BaseException:       # the rest of the chunk is lost: the client must not believe otherwise
                self.close(c)
                raise
        elif size == 0:
            self.end_of(c, hung_up)
        elif errno != EAGAIN and errno != EINTR:
            self.close(c)
        return 0

    cdef int end_of(self, Connection c, bint hung_up) except -1:
        """The client sends no more. Replies still go out; deliveries return to their queues, since it may be gone wholly."""
        if c.waiting() and not c.consumers and not hung_up:
            c.ending = True
            self.want(c, EPOLLOUT)
        else:
            self.close(c)
        return 0

    cdef int flush_dirty(self) except -1:
        cdef list dirty = self.core.dirty_connections
        cdef Py_ssize_t i
        cdef Connection c
        if not dirty:
            return 0
        self.core.dirty_connections = []
        for i in range(PyList_GET_SIZE(dirty)):
            c = <Connection>PyList_GET_ITEM(dirty, i)
            c.dirty = False
            if c.fd >= 0 and not c.interest & EPOLLOUT:
                self.flush(c)
        return 0

    cdef int flush(self, Connection c) except -1:
        cdef ssize_t size
        cdef size_t waiting
        while True:
            waiting = c.waiting()
            if waiting == 0:
                if c.ending:
                    self.close(c)
                    return 0
                self.want(c, self.wanted(c) & ~EPOLLOUT)
                return 0
            size = send(c.fd, c.out.data + c.out.head, waiting, MSG_DONTWAIT | MSG_NOSIGNAL)
            if size >= 0:
                self.core.took(c, size)
            elif errno == EAGAIN:
                self.want(c, self.wanted(c) | EPOLLOUT)
                return 0
            elif errno != EINTR:
                self.close(c)
                return 0

    cdef int wanted(self, Connection c) noexcept:
        """Its interest, with reading taken up again if it stopped only because of unread replies."""
        if self.draining or c.ending or self.core.choked(c) or c.paused:
            return c.interest
        return c.interest | EPOLLIN
