"""Bytes between TCP sockets and the core: one epoll, so that a turn is what it says.

A turn reads every socket that is ready, delivers, and sends. `wait` takes turns until something happens that is not ours: then
the event loop above, whose own descriptors stand in the same epoll, gets its turn. So messages pass without a step through the
loop, and the loop misses nothing. Only here are sockets read, written, paused and closed.

Where a connection has TLS, its bytes are opened before the core has them, and sealed as they leave (sealing.pyx).

A second epoll, itself one descriptor of the first, reports connections whose peer has closed. It does so also while their input is
not read, and each of them once. So the broker knows of every close that has reached the kernel before it takes a new consumer.

Back-pressure: one who does not read its replies is not read; near the memory limit one who only publishes is not read, but for a
chunk now and then, so that nobody hangs: beyond the limit its publishes get errors.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.errno cimport EAGAIN, ECONNRESET, EINTR, EPIPE, errno
from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t, uintptr_t
from libc.math cimport ceil
from libc.stdlib cimport free, malloc

from mqks.core.account cimport Account, Work
from mqks.core.deferred cimport DeferredInput
from mqks.core.delivery cimport Delivery, has_more_to_deliver
from mqks.core.hub cimport Core
from mqks.core.keeping cimport Persistence, write_out
from mqks.core.output cimport Output, unheard
from mqks.core.parts cimport Connection, Consumer, Queue, last_served, waiting
from mqks.core.sealing cimport Sealed, has_ended, has_more, speaks

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        void* ptr
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int maximum, int timeout)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    int EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP, EPOLLET

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    int shutdown(int fd, int how)
    int MSG_DONTWAIT, MSG_NOSIGNAL, SHUT_WR

cdef extern from "time.h" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* time)
    int CLOCK_MONOTONIC

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
    FOREIGN = 1                 # marks the descriptors of the loop above; connections are pointers, which are even
    CHUNK = 128 * 1024          # read at a time
    LITTLE = 4096               # read of a stranger at a time, or above the ceiling of memory: so little can wait
    SHARE = 64                  # requests of one connection before the others have their turn,
    EFFORT = 131072             # or messages to queues, some 15 ms: with less, each send to many consumers would be a small one
    MOST_UNREAD = 64            # chunks of input thrown away when the broker stops
    MUCH = 64 * 1024            # is sent before the others get theirs
    EVENTS = 256                # sockets read in one turn
    CLOSES = 8                  # closes by peers that are looked up at a time: each may have --max-consumers consumers
    ROUNDS = 8                  # of deliver and send in one turn, while sockets take all and queues have more


cdef double monotonic() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


def give_memory_back():
    """Return to the system what was freed in small pieces."""
    trim()


cdef bint has_got_something(Core core, Connection c) except -1:
    """Has a consumer of it been given a message? Each that is looked at counts as effort."""
    cdef Consumer consumer
    if c.consumers:
        for consumer in c.consumers.values():
            core.work.effort += 1
            if consumer.delivered:
                return True
    return False


cdef bint has_memory_again(Core core) noexcept:
    """Can those go on in a round that lacked memory in the last one? What was sent after it may have freed some. The next round goes
    on with all of them, and only lack of memory makes them wait again: so this does not spin."""
    return ((core.account.squeezed and core.account.memory.used < core.account.max_memory)
            or (not core.persistence.stalled and core.account.memory.used < core.account.ceiling and len(core.delivery.unserved) > 0))


@cython.final
cdef class Poller:
    cdef int epoll
    cdef int closes                 # an epoll that reports connections whose peer has closed
    cdef Core core
    cdef object ended               # called with each connection whose input has ended and was processed, if it stays open for replies
    cdef object closed              # called with each connection whose socket was closed here
    cdef object failed              # called with a connection and the exception that its bytes led to; answers its last words
    cdef char* chunk
    cdef epoll_event events[EVENTS]
    cdef list paused                # for memory
    cdef list departed              # closed in this turn; the kernel's list of events may still name them
    cdef uint64_t closings
    cdef list half_closed           # closed for sending in this turn, with consumers that got nothing yet: they are served once
    cdef readonly bint draining
    cdef public double patience     # seconds for which those are heard in a turn who have waited, and again for which others are read

    def __cinit__(self, Core core, ended, closed, failed):
        self.core = core
        self.ended = ended
        self.closed = closed
        self.failed = failed
        self.paused = []
        self.departed = []
        self.half_closed = []
        self.patience = 0.02
        self.chunk = <char*>malloc(CHUNK)
        if self.chunk == NULL:
            raise MemoryError
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, "epoll_create1 failed")
        self.closes = epoll_create1(EPOLL_CLOEXEC)
        if self.closes < 0:
            raise OSError(errno, "epoll_create1 failed")
        self.watch(self.closes, EPOLLIN, False)

    def __dealloc__(self):
        if self.closes >= 0:
            close_fd(self.closes)
        if self.epoll >= 0:
            close_fd(self.epoll)
        free(self.chunk)

    @property
    def has_paused(self):
        return bool(self.paused)

    def add(self, Connection c, tls=None):
        """Read and write this connection's socket, which from now on is the poller's to close; by this TLS, if any."""
        cdef epoll_event event
        event.events = c.interest = EPOLLIN
        event.data.ptr = <void*>c
        if epoll_ctl(self.epoll, EPOLL_CTL_ADD, c.fd, &event) < 0:
            raise OSError(errno, "epoll_ctl failed")
        event.events = <uint32_t>(EPOLLRDHUP | EPOLLET)
        if epoll_ctl(self.closes, EPOLL_CTL_ADD, c.fd, &event) < 0:
            reason = errno
            epoll_ctl(self.epoll, EPOLL_CTL_DEL, c.fd, NULL)
            raise OSError(reason, "epoll_ctl failed")
        if tls is not None:
            c.tls = Sealed(tls)

    def farewell(self, Connection c):
        """Close so that what was sent arrives: to close with input unread would reset the connection."""
        cdef int i
        if c.fd >= 0:
            self.end_tls(c)
            shutdown(c.fd, SHUT_WR)
            for i in range(MOST_UNREAD):
                if recv(c.fd, self.chunk, CHUNK, MSG_DONTWAIT) <= 0:
                    break
            self.close(c)

    def dismiss(self, Connection c):
        """Close it, when it has been sent what it takes at once of what waits for it."""
        if c.fd >= 0:
            self.flush(c)
            self.farewell(c)

    def close(self, Connection c):
        if c.fd < 0:
            return
        self.end_tls(c)
        epoll_ctl(self.epoll, EPOLL_CTL_DEL, c.fd, NULL)
        epoll_ctl(self.closes, EPOLL_CTL_DEL, c.fd, NULL)
        close_fd(c.fd)
        c.fd = -1
        c.tls = None
        self.departed.append(c)
        self.closings += 1
        self.closed(c)

    cdef int end_tls(self, Connection c) except -1:
        if c.tls is not None:
            (<Sealed>c.tls).end(c)
        return 0

    def watch(self, int fd, uint32_t events, bint change):
        """Report these events of a descriptor that is not a connection's."""
        cdef epoll_event event
        event.events = events
        event.data.u64 = (<uint64_t>fd << 1) | FOREIGN
        if epoll_ctl(self.epoll, EPOLL_CTL_MOD if change else EPOLL_CTL_ADD, fd, &event) < 0:
            raise OSError(errno, "epoll_ctl failed")

    def unwatch(self, int fd):
        epoll_ctl(self.epoll, EPOLL_CTL_DEL, fd, NULL)      # it may be closed already

    def notice_closes(self, Connection joining):
        """A consumer of this connection is about to join: learn of every close by a peer that has reached the kernel. Nobody else is
        served once more: the new consumer would get newer messages first."""
        self.take_closes(UINT64_MAX)
        self.end_half_closed(joining)

    cdef int take_closes(self, uint64_t enough) except -1:
        """Learn of closes by peers, until so much effort. The kernel reports the others again."""
        cdef epoll_event events[CLOSES]
        cdef int count = CLOSES
        cdef int i
        cdef Connection c
        while count == CLOSES and self.core.work.effort < enough:
            count = epoll_wait(self.closes, events, CLOSES, 0)
            for i in range(count):
                c = <Connection>events[i].data.ptr
                if events[i].events & EPOLLHUP or has_got_something(self.core, c):
                    self.core.delivery.on_peer_closed(c, events[i].events & EPOLLHUP != 0)
                else:                   # as by `printf 'c1 consume q e' | nc`, which goes on reading
                    self.half_closed.append(c)
        return 0

    cdef int end_half_closed(self, Connection but) except -1:
        """Those that were served once get no more."""
        cdef list closed = self.half_closed
        cdef Connection c
        if closed:
            self.half_closed = []
            for c in closed:
                if c is but:
                    self.half_closed.append(c)
                elif c.fd >= 0:
                    self.core.delivery.on_peer_closed(c, False)
        return 0

    def wait(self, double seconds):
        """Take turns for so long (for ever if negative), or until the loop above has something to do: events of its own
        descriptors, which are answered, or what a request handled in Python may have scheduled."""
        cdef double end = monotonic() + seconds if seconds > 0 else 0
        cdef double left = seconds
        cdef uint64_t calls = self.core.parser.requests + self.closings + self.core.delivery.rooms
        cdef int milliseconds
        cdef int count
        cdef list foreign
        while True:
            milliseconds = -1 if left < 0 else <int>min(ceil(left * 1000), 1e9)
            if ((has_more_to_deliver(self.core.delivery) and not self.core.persistence.stalled) or self.core.output.dirty_connections or self.core.deferred.can_resume
                    or (self.core.log.end != self.core.log.written and self.core.log.journaled and not self.core.log.refusing)
                    or has_memory_again(self.core)):
                milliseconds = 0
            with nogil:
                count = epoll_wait(self.epoll, self.events, EVENTS, milliseconds)
            foreign = self.turn(max(count, 0))
            if foreign or self.core.parser.requests + self.closings + self.core.delivery.rooms != calls or seconds == 0:
                return foreign
            if seconds > 0:
                left = end - monotonic()
                if left <= 0:
                    return foreign

    cdef list turn(self, int count):
        """Read, deliver, send; answers the events that are not ours."""
        cdef list foreign = []
        cdef uint32_t events
        cdef uint64_t what
        cdef int i
        cdef Connection c
        cdef bint late = False
        cdef double end
        self.end_half_closed(None)
        if self.core.deferred.can_resume:
            self.hear_those_who_waited()
        end = monotonic() + self.patience
        for i in range(count):
            what = self.events[i].data.u64
            events = self.events[i].events
            if what & FOREIGN:
                if <int>(what >> 1) == self.closes:
                    self.take_closes(self.core.work.effort + EFFORT)
                else:
                    foreign.append((<int>(what >> 1), events))
                continue
            c = <Connection><void*><uintptr_t>what
            if events & (EPOLLIN | EPOLLERR | EPOLLHUP) and c.fd >= 0:
                self.read(c, events & (EPOLLERR | EPOLLHUP) != 0, late)
                late = late or monotonic() >= end
        write_out(self.core.persistence)            # before anything is sent: what a client sees, a crash does not undo
        for i in range(count):
            what = self.events[i].data.u64
            if self.events[i].events & EPOLLOUT and not what & FOREIGN:
                c = <Connection><void*><uintptr_t>what
                if c.fd >= 0:
                    self.flush(c)
        self.core.delivery.begin_turn()
        for i in range(ROUNDS):
            self.deliver()
            self.flush_dirty()
            if not self.core.ready.dirty_queues or self.core.work.effort >= self.core.delivery.quota:
                break
        write_out(self.core.persistence)            # what became of the messages that were sent
        if self.departed:
            self.departed = []
        return foreign

    cdef int hear_those_who_waited(self) except -1:
        """Whoever is not reached in time is the first in the next turn."""
        cdef double end = monotonic() + self.patience
        cdef list waited = self.core.deferred.resumable()
        cdef bint had_bytes
        cdef Py_ssize_t i
        cdef Connection c
        for i in range(PyList_GET_SIZE(waited)):
            if i and monotonic() >= end:
                return self.core.deferred.postpone(waited[i:])
            c = <Connection>PyList_GET_ITEM(waited, i)
            had_bytes = c.unread.tail != 0
            self.hear(c, 0)
            if c.fd < 0:
                continue
            if has_ended(c) and not c.ending:
                self.end_when_heard(c)
                continue
            self.want(c, self.wanted(c))
            if not had_bytes and c.interest & EPOLLIN:
                self.read(c, False, False)
        return 0

    cdef int deliver(self) except -1:
        """A round in which a connection that got much from one queue is sent it at once: while it is in the cache, and so
        that the next one can have its buffer."""
        cdef Queue q
        cdef Connection c
        if not self.core.delivery.begin_round():
            return 0
        while self.core.work.effort < self.core.delivery.quota:
            q = self.core.delivery.serve_next()
            if q is None:
                return 0
            if q.consumers.count == 1 and last_served(q.consumers) is not None:
                c = last_served(q.consumers).connection
                if waiting(c) >= MUCH and not c.interest & EPOLLOUT:
                    self.flush(c)
        return 0

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
        return self.core.account.memory.used >= self.core.account.max_memory - self.core.account.max_memory // 10

    cdef int want(self, Connection c, int interest) except -1:
        cdef epoll_event event
        if interest == c.interest:
            return 0
        c.interest = event.events = interest
        event.data.ptr = <void*>c
        if epoll_ctl(self.epoll, EPOLL_CTL_MOD, c.fd, &event) < 0:
            raise OSError(errno, "epoll_ctl failed")
        return 0

    cdef int read(self, Connection c, bint hung_up, bint late) except -1:
        """Take a chunk of what has come, or, when it is late, in the turn after this one."""
        cdef ssize_t size
        if not hung_up:
            if self.draining or c.unread.tail or unheard(self.core.output, c) or speaks(c):
                self.core.acks.review_returning(c)
                return self.want(c, c.interest & ~EPOLLIN)
            if c.publishes and not c.consumers and not c.trickle and self.near_limit():
                c.paused = True
                self.paused.append(c)
                return self.want(c, c.interest & ~EPOLLIN)
        elif c.unread.tail and not unheard(self.core.output, c):
            return 0                    # what it said before has its turn first
        elif c.stranger and c.blocked:
            self.close(c)               # nobody waits for what is decided about it
            return 0
        if late:
            if hung_up:
                return 0                # the kernel will tell of it again
            self.core.deferred.hold_back(c)
            return self.want(c, c.interest & ~EPOLLIN)
        c.trickle = False
        size = recv(c.fd, self.chunk, LITTLE if c.stranger or self.core.account.memory.used >= self.core.account.ceiling else CHUNK, MSG_DONTWAIT)
        if size > 0:
            self.hear(c, size)
        elif size == 0:
            self.end_of(c, hung_up)
        elif errno != EAGAIN and errno != EINTR:
            self.close(c)
        return 0

    cdef int hear(self, Connection c, size_t size) except -1:
        """Bytes that have just come, or those that waited."""
        self.core.parser.until = self.core.parser.requests + SHARE
        self.core.parser.exhausted = self.core.work.effort + EFFORT
        try:
            if not size:
                self.core.parser.resume(c)
            elif c.tls is None:
                self.core.parser.take_bytes(c, self.chunk, size)
            else:
                self.open(c, <Sealed>c.tls, size)
        except Exception as error:      # the rest of its bytes is lost: the client must not believe otherwise
            self.fail(c, error)
        self.core.parser.until = self.core.parser.exhausted = UINT64_MAX
        return 0

    cdef int fail(self, Connection c, error) except -1:
        """Cut it off; where it is itself to blame, it is told so."""
        cdef bytes words = self.failed(c, error)
        if words is not None and c.fd >= 0:
            send(c.fd, PyBytes_AS_STRING(words), PyBytes_GET_SIZE(words), MSG_DONTWAIT | MSG_NOSIGNAL)
            self.farewell(c)
        self.close(c)
        return 0

    cdef int open(self, Connection c, Sealed sealed, size_t size) except -1:
        """Sealed bytes that have just come, record by record: so TLS takes little memory to itself."""
        cdef size_t at = 0
        cdef bytes plain
        while at < size:
            at += sealed.put(self.chunk + at, size - at)
            if not sealed.whole:
                break
            plain = sealed.open()
            if plain:
                self.core.parser.take_bytes(c, PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain))
                if c.fd < 0:
                    return 0
            if sealed.ended:
                return self.end_when_heard(c)
        sealed.listen()
        if sealed.has_more(c) and not c.dirty:          # it is sent in this turn, after what the journal must have first
            c.dirty = True
            self.core.output.dirty_connections.append(c)
        return 0

    cdef int end_when_heard(self, Connection c) except -1:
        """It has said that it sends no more: that counts after what it said before, as the end of a plain connection does."""
        self.core.delivery.on_peer_closed(c, False)
        if c.unread.tail or c.blocked:
            return self.want(c, c.interest & ~EPOLLIN)
        return self.end_of(c, False)

    cdef int end_of(self, Connection c, bint hung_up) except -1:
        """The client sends no more, and all of its input was processed. Its consumers leave, and nothing is followed for it, since it
        may be gone wholly; replies still go out. A client that does not take its deliveries is closed: they return to their queues."""
        cdef bint stuck = c.consumers and (c.settling or not c.held)
        if hung_up or stuck or not (c.held or waiting(c)):
            self.close(c)
            return 0
        c.ending = True
        self.core.delivery.on_peer_closed(c, False)
        self.want(c, EPOLLOUT if waiting(c) else 0)
        self.ended(c)
        return 0

    cdef int flush_dirty(self) except -1:
        cdef list dirty = self.core.output.dirty_connections
        cdef Py_ssize_t i
        cdef Connection c
        if not dirty:
            return 0
        self.core.output.dirty_connections = []
        for i in range(PyList_GET_SIZE(dirty)):
            c = <Connection>PyList_GET_ITEM(dirty, i)
            c.dirty = False
            if c.fd >= 0 and not c.interest & EPOLLOUT:
                self.flush(c)
        return 0

    cdef int flush(self, Connection c) except -1:
        cdef ssize_t size
        while True:
            if not has_more(c):
                if c.ending and not c.held:
                    self.close(c)
                    return 0
                self.want(c, self.wanted(c) & ~EPOLLOUT)
                return 0
            if c.tls is None:
                size = send(c.fd, c.out.data + c.out.head, waiting(c), MSG_DONTWAIT | MSG_NOSIGNAL)
            else:
                try:
                    size = (<Sealed>c.tls).move(c)
                except Exception as error:
                    return self.fail(c, error)
            if size > 0:
                self.core.delivery.took(c, size)
            elif size == 0:
                continue                # TLS itself has said something, or a part of a record has left
            elif errno == EAGAIN:
                self.want(c, self.wanted(c) | EPOLLOUT)
                return 0
            elif errno != EINTR:
                if (errno == ECONNRESET or errno == EPIPE) and not c.blocked:
                    self.core.delivery.on_peer_closed(c, True)
                    return self.want(c, 0)      # its input is still processed: EPOLLHUP is reported until `read` finds the end
                self.close(c)
                return 0

    cdef int wanted(self, Connection c) noexcept:
        """Its interest, with reading taken up again if it stopped only because of unread replies."""
        if self.draining or c.ending or c.paused or c.unread.tail or unheard(self.core.output, c) or speaks(c):
            return c.interest
        return c.interest | EPOLLIN
