"""Lines in: what clients say, cut anywhere.

Publishes and acks are understood here, in the receive buffer, without an object per message; every other line goes to the handler in
Python, which calls back for what it needs. It touches the beginnings of lines that connections have, and asks the other parts
for the rest.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport SIZE_MAX, UINT64_MAX, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from mqks.core cimport buffer
from mqks.core.account cimport Account, Work
from mqks.core.bounding cimport QueueLimits
from mqks.core.confirming cimport Confirmations
from mqks.core.deferred cimport DeferredInput
from mqks.core.digest cimport Digest
from mqks.core.events cimport Binding, Events, look_up
from mqks.core.output cimport Output, unheard
from mqks.core.parts cimport Connection, Consumer
from mqks.core.routing cimport Router
from mqks.core.sealing cimport amid_record
from mqks.core.seen cimport Seen
from mqks.core.settling cimport Acks
from mqks.core.tail cimport Tail, commit, room_for
from mqks.core.text cimport Flags, ends_like_retry, is_ack, is_clean, is_legal_scope, is_publish, scope_of, take_flags

cdef enum Flaw:
    NONE_FOUND = 0
    TOO_LONG = 1
    CONTROL = 2
    NO_MEMORY = 3

cdef enum:
    SHARE = 64                  # requests of one connection before the others have their turn,
    EFFORT = 131072             # or messages to queues, some 15 ms: with less, each send to many consumers would be a small one
    SHORT = 4096                # so much of an unfinished line is kept even when memory is full, or for a stranger


@cython.final
cdef class Parser:
    def __init__(
        self, Account account, Work work, Tail log, Events events, Seen seen, Output output, Confirmations confirmations,
        Acks acks, QueueLimits limits, Router router, DeferredInput deferred, handler,
    ):
        self.account = account
        self.memory = &account.memory
        self.work = work
        self.log = log
        self.events = events
        self.seen = seen
        self.output = output
        self.confirmations = confirmations
        self.acks = acks
        self.limits = limits
        self.router = router
        self.deferred = deferred
        self.handler = handler
        self.end_share()

    def feed(self, Connection c, bytes data):
        """Take these bytes, however much work that is."""
        try:
            self.take_bytes(c, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        finally:
            self.end_share()

    cdef void begin_share(self) noexcept:
        """The lines of one connection come now, until it is another connection's turn."""
        self.until = self.requests + SHARE
        self.exhausted = self.work.effort + EFFORT

    cdef void end_share(self) noexcept:
        self.until = self.exhausted = UINT64_MAX

    def block(self, Connection c):
        """Hear nothing of it after this line, until there has been an `unblock` for each `block`."""
        c.blocked += 1

    def unblock(self, Connection c):
        c.blocked -= 1
        if not c.blocked and not c.gone:
            self.deferred.hold_back(c)

    def rest(self):
        """The request that is being handled costs much: what its client has said after it is heard in another turn."""
        self.until = self.requests

    def amid_line(self, connections):
        """Those of these that have begun a line, or a record of TLS, and not ended it, though they are heard."""
        cdef Connection c
        return [
            c for c in connections
            if (c.partial.tail or c.skipping or amid_record(c)) and not (c.unread.tail or c.paused or unheard(self.output, c))
        ]

    cpdef int resume(self, Connection c) except -1:
        """Take the lines that waited, as long as the client reads. The rest stays where it is: it is not copied each time."""
        cdef buffer.Buffer unread = c.unread
        if unread.tail == 0:
            return 0
        c.unread = buffer.Buffer(NULL, 0, 0, 0)     # the handler may do anything with the connection meanwhile
        try:
            unread.head = self.take_lines(c, unread.data + unread.head, unread.data + unread.tail) - unread.data
            if unread.head < unread.tail and not c.gone:
                c.unread = unread
                unread = buffer.Buffer(NULL, 0, 0, 0)
                self.deferred.hold_back(c)
        finally:
            buffer.release(&unread, self.memory)
            self.end_share()
        return 0

    cdef int detach(self, Connection c) except -1:
        """The connection is gone: nothing of what it said waits any more."""
        buffer.release(&c.partial, self.memory)
        buffer.release(&c.unread, self.memory)
        return self.deferred.detach(c)

    cdef int take_bytes(self, Connection c, char* p, size_t size) except -1:
        c.received += size
        if not c.inside:
            self.bytes_in += size
        cdef char* end = p + size
        if not c.unread.tail:
            p = self.take_lines(c, p, end)
            if p == end or c.gone:
                return 0
            self.deferred.hold_back(c)
        return buffer.append(&c.unread, self.memory, p, end - p)

    cdef char* take_lines(self, Connection c, char* p, char* end) except NULL:
        """Lines as they come, cut anywhere; answers where the rest begins, which has to wait. A short request may have a long
        reply: so before each one it is asked whether the client still reads. Nor may it keep the others waiting for long."""
        cdef Output output = self.output    # once for all lines: an attribute that is passed on is counted each time
        cdef char* newline
        cdef bint clean
        cdef buffer.Buffer whole
        if unheard(output, c) or has_had_its_turn(self):
            return p
        if c.skipping:
            newline = <char*>memchr(p, 10, end - p)
            if newline == NULL:
                return end
            c.skipping = False
            c.lines += 1
            p = newline + 1
        if c.partial.tail:
            newline = <char*>memchr(p, 10, end - p)
            if newline == NULL:
                self.keep_partial(c, p, end - p)
                return end
            buffer.append(&c.partial, self.memory, p, newline - p)
            p = newline + 1
            whole = c.partial           # the handler may do anything with the connection meanwhile
            c.partial = buffer.Buffer(NULL, 0, 0, 0)
            try:
                self.take_line(c, whole.data, whole.data + whole.tail, False)
            finally:
                buffer.release(&whole, self.memory)
        if p == end:
            return end
        # Once per chunk instead of once per line: almost no chunk has any of these.
        clean = is_clean(p, end - p)
        while p < end and not c.gone:
            if unheard(output, c) or has_had_its_turn(self):
                return p
            newline = <char*>memchr(p, 10, end - p)
            if newline == NULL:
                self.keep_partial(c, p, end - p)
                return end
            self.take_line(c, p, newline, clean)
            p = newline + 1
        return p

    cdef int keep_partial(self, Connection c, char* p, size_t size) except -1:
        """Keep the beginning of a line until its end comes; give up on it as soon as it is too long."""
        cdef size_t most = longest(self, c)
        cdef size_t room = most + 2 - c.partial.tail        # a CR and one byte too many
        cdef int flaw = NONE_FOUND
        cdef bytes line
        buffer.append(&c.partial, self.memory, p, min(size, room))
        if c.partial.tail > most + (c.partial.data[c.partial.tail - 1] == 13):
            flaw = TOO_LONG
        elif c.partial.tail > affordable(self):
            flaw = NO_MEMORY
        if flaw:
            line = c.partial.data[:c.partial.tail]
            c.skipping = True
            buffer.release(&c.partial, self.memory)
            spend(self, c)
            self.requests += 1
            self.handler.request(c, line, flaw)
        return 0

    cdef int take_line(self, Connection c, char* p, char* end, bint clean) except -1:
        cdef size_t size
        cdef char* after_id
        cdef int flaw = NONE_FOUND
        if not clean and end > p and (end - 1)[0] == 13:
            end -= 1
        size = end - p
        if size == 0:
            return 0
        c.lines += 1
        spend(self, c)
        if size > longest(self, c):
            flaw = TOO_LONG
        elif size > SHORT and self.memory.used >= self.account.ceiling:
            flaw = NO_MEMORY            # its reply may be as long
        elif not clean and (memchr(p, 9, size) != NULL or memchr(p, 0, size) != NULL):
            flaw = CONTROL
        elif not c.stranger and (clean or memchr(p, 13, size) == NULL):
            after_id = <char*>memchr(p, 32, size)
            if after_id != NULL and after_id != p and p[0] != 45 and p[0] != 123:       # neither - nor {
                if end - after_id > 9 and is_publish(after_id):
                    if self.publish_line(c, p, after_id, end):
                        return 0
                elif end - after_id > 5 and is_ack(after_id):
                    if self.ack_line(c, after_id, end):
                        return 0
        self.requests += 1
        self.handler.request(c, p[:size], flaw)
        return 0

    cdef bint publish_line(self, Connection c, char* p, char* after_id, char* end) except -1:
        """A publish as it mostly comes. False: let the handler look at it."""
        cdef char* event = after_id + 9
        cdef char* after_event
        cdef char* to
        cdef char* scope
        cdef size_t scope_size
        cdef size_t size
        cdef uint64_t position
        cdef void* found
        cdef Binding binding
        cdef Flags flags = Flags(False, event, 0)
        cdef Digest digest
        cdef Tail log = self.log
        if event[0] == 45:
            event = take_flags(event, end, &flags)
            if flags.confirm or flags.once_size:
                c.early_only = False
        c.publishes = True
        after_event = <char*>memchr(event, 32, end - event)
        if after_event == NULL or after_event == event or self.memory.used >= self.account.max_memory or log.refusing:
            return False
        if c.granted is not None and event[:after_event - event] not in c.granted:
            return False
        found = look_up(self.events, event, after_event - event)
        binding = None if found == NULL else <Binding>found
        if binding is None and (event[0] == 45 or event[0] == 123 or ends_like_retry(event, after_event)):
            return False
        size = (after_id - p) + 9 + flags.once_size + (end - event) + 1
        if self.limits.limited and self.router.full_one(binding, event, after_event, end, size) is not None:
            return False
        if flags.once_size:
            if self.seen.most == 0 or not is_legal_scope(&flags):
                return False
            scope = scope_of(&flags, &scope_size)
            digest = self.seen.digest(scope, scope_size, p, after_id - p)
            if not self.seen.admit(digest):
                if flags.confirm:
                    self.confirmations.confirm_id(c, p, after_id - p)
                return True
        to = room_for(log, size)
        if flags.confirm:
            memcpy(to, p, after_id + 9 - p)
            memcpy(to + (after_id + 9 - p), flags.once, flags.once_size)
            memcpy(to + size - 1 - (end - event), event, end - event)
        else:
            memcpy(to, p, size - 1)
        to[size - 1] = 10
        position = commit(log, size)
        if flags.once_size:
            self.seen.add(digest, position, self.seen.now)
        self.router.route(binding, position, event, after_event, end)
        if flags.confirm:
            self.confirmations.confirm_id(c, p, after_id - p)
        return True

    cdef bint ack_line(self, Connection c, char* after_id, char* end) except -1:
        """An ack of one message without flags. False: let the handler look at it."""
        cdef char* consumer_id = after_id + 5
        cdef char* message_id
        cdef size_t size
        cdef Consumer consumer
        message_id = <char*>memchr(consumer_id, 32, end - consumer_id)
        if message_id == NULL:
            return False
        size = message_id - consumer_id
        message_id += 1
        if (message_id == end or message_id[0] == 45 or message_id[0] == 123 or consumer_id[0] == 45 or consumer_id[0] == 123
                or memchr(message_id, 32, end - message_id) != NULL):
            return False
        consumer = c.recent
        if (consumer is None or <size_t>PyBytes_GET_SIZE(consumer.id) != size
                or memcmp(PyBytes_AS_STRING(consumer.id), consumer_id, size) != 0):
            if c.consumers is None:
                return False
            consumer = c.consumers.get(consumer_id[:size])
            if consumer is None:
                return False
            c.recent = consumer
        if consumer.manual_ack:
            self.acks.ack_id(consumer, message_id, end - message_id)
        return True


cdef inline bint has_had_its_turn(Parser parser) noexcept:
    return parser.requests >= parser.until or parser.work.effort >= parser.exhausted


cdef inline int spend(Parser parser, Connection c) except -1:
    c.budget -= 1
    if c.budget < 0:
        parser.handler.spent(c)
    return 0


cdef inline size_t affordable(Parser parser) noexcept:
    """Bytes of an unfinished line that there is memory for."""
    if parser.memory.used < parser.account.max_memory:
        return SIZE_MAX
    return SHORT if parser.memory.used < parser.account.ceiling else buffer.SMALL


cdef inline size_t longest(Parser parser, Connection c) noexcept:
    """Bytes that a line of it may have."""
    return min(parser.output.max_line, <size_t>SHORT) if c.stranger else parser.output.max_line
