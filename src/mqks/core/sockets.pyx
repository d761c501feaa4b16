"""Bytes between TCP sockets and the core: one epoll, so that a turn is what it says.

`wait` takes turns (turn.pyx) until something happens that is not ours: then the event loop above, whose own descriptors stand in the same epoll, gets its turn. So messages pass without a step through the
loop, and the loop misses nothing. Only here are sockets read, written, paused and closed.

Where a connection has TLS, its bytes are opened before the core has them, and sealed as they leave (sealing.pyx).

A second epoll, itself one descriptor of the first, reports connections whose peer has closed. It does so also while their input is
not read, and each of them once. So the broker knows of every close that has reached the kernel before it takes a new consumer.

Back-pressure: one who does not read its replies is not read; near the memory limit one who only publishes is not read, but for a
chunk now and then, so that nobody hangs: beyond the limit its publishes get errors.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.errno cimport EAGAIN, ECONNRESET, EINTR, EPIPE, errno
from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t, uintptr_t
from libc.math cimport ceil
from libc.stdlib cimport free, malloc

from mqks.core.hub cimport Core
from mqks.core.output cimport unheard
from mqks.core.parts cimport Connection, Consumer, waiting
from mqks.core.sealing cimport Sealed, has_ended, has_more, speaks
from mqks.core.turn cimport Transport, Turn

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
    CLOSES_EFFORT = 131072      # of looking up closes by peers, in one turn
    MOST_UNREAD = 64            # chunks of input thrown away when the broker stops
    EVENTS = 256                # sockets read in one turn
    CLOSES = 8                  # closes by peers that are looked up at a time: each may have --max-consumers consumers


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


@cython.final
cdef class Poller(Transport):
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
    cdef Turn turn
    cdef int ready                  # of events
    cdef list foreign               # events that are not ours, of this turn
    cdef uint64_t closings_before   # this turn
    cdef double deadline            # of this `wait`; below 0: there is none

    def __cinit__(self, Core core, ended, closed, failed, pump):
        self.core = core
        self.turn = Turn(core, pump)
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
        cdef double left = seconds
        cdef int milliseconds
        self.deadline = seconds if seconds < 0 else monotonic() + seconds
        while True:
            milliseconds = -1 if left < 0 else <int>min(ceil(left * 1000), 1e9)
            if self.turn.has_more():
                milliseconds = 0
            with nogil:
                self.ready = epoll_wait(self.epoll, self.events, EVENTS, milliseconds)
            if self.turn.take(self):
                return self.foreign
            if seconds > 0:
                left = max(self.deadline - monotonic(), 0.0)

    # ── the parts of a turn ──

    cdef double now(self) noexcept:
        return monotonic()

    cdef int begin(self) except -1:
        self.foreign = []
        self.closings_before = self.closings
        return self.end_half_closed(None)

    cdef int resume_input(self, Connection c) except -1:
        cdef bint had_bytes = c.unread.tail != 0
        self.hear(c, 0)
        if c.fd < 0:
            return 0
        if has_ended(c) and not c.ending:
            return self.end_when_heard(c)
        self.want(c, self.wanted(c))
        if not had_bytes and c.interest & EPOLLIN:
            self.read_from(c, False, False)
        return 0

    cdef int read(self) except -1:
        cdef double end = monotonic() + self.patience
        cdef bint late = False
        cdef uint32_t events
        cdef uint64_t what
        cdef int i
        cdef Connection c
        for i in range(self.ready):
            what = self.events[i].data.u64
            events = self.events[i].events
            if what & FOREIGN:
                if <int>(what >> 1) == self.closes:
                    self.take_closes(self.core.work.effort + CLOSES_EFFORT)
                else:
                    self.foreign.append((<int>(what >> 1), events))
                continue
            c = <Connection><void*><uintptr_t>what
            if events & (EPOLLIN | EPOLLERR | EPOLLHUP) and c.fd >= 0:
                self.read_from(c, events & (EPOLLERR | EPOLLHUP) != 0, late)
                late = late or monotonic() >= end
        return 0

    cdef int write(self) except -1:
        cdef uint64_t what
        cdef int i
        cdef Connection c
        for i in range(self.ready):
            what = self.events[i].data.u64
            if self.events[i].events & EPOLLOUT and not what & FOREIGN:
                c = <Connection><void*><uintptr_t>what
                if c.fd >= 0:
                    self.flush(c)
        return 0

    cdef bint can_send(self, Connection c) noexcept:
        return c.fd >= 0 and not c.interest & EPOLLOUT

    cdef bint end(self) except -1:
        if self.departed:
            self.departed = []
        return (PyList_GET_SIZE(self.foreign) > 0 or self.closings != self.closings_before
                or (self.deadline >= 0 and monotonic() >= self.deadline))

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

    cdef int read_from(self, Connection c, bint hung_up, bint late) except -1:
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
        self.core.parser.begin_share()
        try:
            if not size:
                self.core.parser.resume(c)
            elif c.tls is None:
                self.core.parser.take_bytes(c, self.chunk, size)
            else:
                self.open(c, <Sealed>c.tls, size)
        except Exception as error:      # the rest of its bytes is lost: the client must not believe otherwise
            self.fail(c, error)
        self.core.parser.end_share()
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
        if sealed.has_more(c):          # it is sent in this turn, after what the journal must have first
            self.core.output.mark_dirty(c)
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
                    return self.want(c, 0)      # its input is still processed: EPOLLHUP is reported until `read_from` finds the end
                self.close(c)
                return 0

    cdef int wanted(self, Connection c) noexcept:
        """Its interest, with reading taken up again if it stopped only because of unread replies."""
        if self.draining or c.ending or c.paused or c.unread.tail or unheard(self.core.output, c) or speaks(c):
            return c.interest
        return c.interest | EPOLLIN
