"""The hot path: lines in, messages to queues, deliveries out. It does no I/O and knows no policy.

Bytes come in by `feed` and leave by `Connection.pending` and `sent`; whoever has the sockets moves them. Publishes and acks are
understood here, in the receive buffer, without an object per message; every other line goes to the handler in Python, which
calls back for what it needs. Deliveries happen in `deliver`, at the end of a turn, queue by queue.

The handler has four methods:
    request(connection, line, flaw)             any other line, or one that is too long or holds a TAB or NUL
    render(line, dialect, retry) -> bytes       what follows "{id} ok " where it is not the line's own text
    inspect(event, data) -> list of queues      patterns that look into the data of MQKS messages
    update(consumer) -> bytes                   the line that tells a consumer how things stand with its queue
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcmp, memcpy

from mqks.core cimport buffer, fifo, heap, unsettled
from mqks.core.memory cimport Memory, give_back, take
from mqks.core.events cimport look_up
from mqks.core.tail cimport Segment, commit, find, hold, let_go, room_for
from mqks.core.unsettled cimport NONE, Unsettled

cdef enum:
    LARGE = 512 * 1024          # an out-buffer of a busy connection; some are kept at rest
    SPARES = 8
    MANY_RETRIES = 255          # does not fit beside the position: the count is in Queue.retries

cdef extern from *:
    """
    #define MQKS_POSITION_MASK ((UINT64_C(1) << 56) - 1)
    #define MQKS_RETRY_SHIFT 56
    """
    uint64_t POSITION "MQKS_POSITION_MASK"
    int RETRY "MQKS_RETRY_SHIFT"

cdef extern from *:
    """
    /* No TAB, NUL, CR or the like in these bytes? Without branches, so that the compiler uses vectors. */
    static int mqks_is_clean(const char *text, size_t size) {
        unsigned char found = 0;
        for (size_t i = 0; i < size; i++) {
            unsigned char c = (unsigned char)text[i];
            found |= (c < 14) & (c != 10);
        }
        return !found;
    }
    """
    bint is_clean "mqks_is_clean" (const char* text, size_t size) noexcept nogil

cdef extern from *:
    """
    /* With sizes that the compiler knows, comparing and copying needs no call. */
    static inline int mqks_is_publish(const char *text) {
        uint64_t found, wanted;
        memcpy(&found, text, 8);
        memcpy(&wanted, " publish", 8);
        return found == wanted && text[8] == ' ';
    }
    static inline int mqks_is_ack(const char *text) {
        return text[1] == 'a' && text[2] == 'c' && text[3] == 'k' && text[4] == ' ';
    }
    static inline void mqks_copy_short(char *to, const char *from, size_t size) {
        if (size >= 8 && size <= 16) {
            uint64_t first, last;
            memcpy(&first, from, 8);
            memcpy(&last, from + size - 8, 8);
            memcpy(to, &first, 8);
            memcpy(to + size - 8, &last, 8);
        } else if (size >= 4 && size < 8) {
            uint32_t first, last;
            memcpy(&first, from, 4);
            memcpy(&last, from + size - 4, 4);
            memcpy(to, &first, 4);
            memcpy(to + size - 4, &last, 4);
        } else
            memcpy(to, from, size);
    }
    """
    bint is_publish "mqks_is_publish" (const char* text) noexcept nogil
    bint is_ack "mqks_is_ack" (const char* text) noexcept nogil
    void copy_short "mqks_copy_short" (char* to, const char* text, size_t size) noexcept nogil


cdef bint ends_like_retry(const char* p, const char* end) noexcept:
    """Does this event end in ",retry={digits}"? Then a delivery of it could be taken for a retry of another."""
    cdef const char* at = end
    while at > p and 48 <= (at - 1)[0] <= 57:
        at -= 1
    return at != end and at - p >= 7 and memcmp(at - 7, b",retry=", 7) == 0


cdef class Connection:
    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)
        buffer.release(&self.partial, &uncounted)
        buffer.release(&self.out, &uncounted)

    @property
    def pending_size(self):
        return waiting(self)

    def pending(self):
        """All that waits to be sent."""
        return PyBytes_FromStringAndSize(self.out.data + self.out.head, waiting(self)) if waiting(self) else b""


@cython.final
cdef class Consumer:
    def __init__(self, bytes id, Connection connection, Queue queue):
        self.id = id
        self.connection = connection
        self.queue = queue
        self.prefix = id + b" ok "

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)
        unsettled.free_ring(&self.ring, &uncounted)

    @property
    def unacked(self):
        return self.ring.live if self.manual_ack else 0

    cdef bint has_room(self) noexcept:
        return (waiting(self.connection) < self.connection.core.high_water
                and (self.prefetch == 0 or self.ring.live < self.prefetch))


cdef class Queue:
    def __cinit__(self):
        self.consumers = []
        self.retries = {}
        self.stamp = NONE

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)
        fifo.clear(&self.ready, &uncounted)
        heap.heap_clear(&self.returned, &uncounted)

    @property
    def ready_count(self):
        return self.ready.count + self.returned.count

    @property
    def returned_count(self):
        return self.returned.count


@cython.final
cdef class Core:
    def __init__(self, handler, *, size_t max_line, size_t max_memory, size_t high_water, uint64_t seed):
        self.handler = handler
        self.max_line = max_line
        self.max_memory = max_memory
        self.high_water = high_water
        self.seed = seed
        self.tail = Tail()
        self.tail.open(&self.memory)
        self.events = Events(seed)
        self.everything = []
        self.dirty_queues = []
        self.dirty_connections = []
        self.spare = <char**>take(&self.memory, SPARES * sizeof(char*))

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)
        cdef int i
        for i in range(self.spares):
            give_back(&uncounted, self.spare[i], LARGE)
        give_back(&uncounted, self.spare, SPARES * sizeof(char*))

    @property
    def used(self):
        """Bytes of memory taken for messages, queues and buffers."""
        return self.memory.used

    @property
    def full(self):
        return self.memory.used >= self.max_memory

    @property
    def position(self):
        """The position of the next message."""
        return self.tail.end

    @property
    def held(self):
        """Bytes of the messages that are still held."""
        return self.tail.held

    # ── connections ──

    def attach(self, Connection c, int fd=-1):
        c.core = self
        c.fd = fd

    def detach(self, Connection c):
        """The connection is gone, and its consumers have left: free what it had; deliveries that never left return."""
        cdef Consumer consumer
        if c.settling is not None:
            for consumer in c.settling:
                self.return_unsettled(consumer, True)
        c.gone = True
        c.settling = c.starved = c.due = None
        buffer.release(&c.partial, &self.memory)
        self.drop_out(c)

    def feed(self, Connection c, bytes data):
        self.take_bytes(c, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    def sent(self, Connection c, size_t size):
        """The first `size` bytes of what was pending have left."""
        self.took(c, size)

    def say(self, Connection c, bytes line):
        """A reply, newline included."""
        self.write(c, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line))

    def tell(self, Consumer consumer):
        """Say how things stand with its queue. One who does not read is told once, when it reads again."""
        cdef Connection c = consumer.connection
        if self.choked(c):
            if c.due is None:
                c.due = {}
            c.due[consumer] = None
        else:
            self.say(c, self.handler.update(consumer))

    cpdef bint choked(self, Connection c):
        """Has this client let so many replies pile up, beyond what deliveries alone may, that it should not be read?"""
        return waiting(c) > 2 * self.high_water + self.max_line

    # ── lines in ──

    cdef int take_bytes(self, Connection c, char* p, size_t size) except -1:
        cdef char* end = p + size
        cdef char* newline
        cdef bint clean
        cdef buffer.Buffer whole
        c.received += size
        if c.skipping:
            newline = <char*>memchr(p, 10, size)
            if newline == NULL:
                return 0
            c.skipping = False
            p = newline + 1
        if c.partial.tail:
            newline = <char*>memchr(p, 10, end - p)
            if newline == NULL:
                return self.keep_partial(c, p, end - p)
            buffer.append(&c.partial, &self.memory, p, newline - p)
            p = newline + 1
            whole = c.partial           # the handler may do anything with the connection meanwhile
            c.partial = buffer.Buffer(NULL, 0, 0, 0)
            try:
                self.take_line(c, whole.data, whole.data + whole.tail, False)
            finally:
                buffer.release(&whole, &self.memory)
        if p == end:
            return 0
        # Once per chunk instead of once per line: almost no chunk has any of these.
        clean = is_clean(p, end - p)
        while p < end and not c.gone:
            newline = <char*>memchr(p, 10, end - p)
            if newline == NULL:
                return self.keep_partial(c, p, end - p)
            self.take_line(c, p, newline, clean)
            p = newline + 1
        return 0

    cdef int keep_partial(self, Connection c, char* p, size_t size) except -1:
        """Keep the beginning of a line until its end comes; give up on it as soon as it is too long."""
        cdef size_t room = self.max_line + 2 - c.partial.tail       # a CR and one byte too many
        cdef size_t allowed
        cdef bytes line
        buffer.append(&c.partial, &self.memory, p, min(size, room))
        allowed = self.max_line + (c.partial.data[c.partial.tail - 1] == 13)
        if c.partial.tail > allowed:
            line = c.partial.data[:c.partial.tail]
            c.skipping = True
            buffer.release(&c.partial, &self.memory)
            self.requests += 1
            self.handler.request(c, line, TOO_LONG)
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
        if size > self.max_line:
            flaw = TOO_LONG
        elif not clean and (memchr(p, 9, size) != NULL or memchr(p, 0, size) != NULL):
            flaw = CONTROL
        elif clean or memchr(p, 13, size) == NULL:
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
        cdef bint confirm = False
        cdef size_t size
        cdef void* found
        cdef Binding binding
        if event[0] == 45 and end - event > 10 and memcmp(event, b"--confirm ", 10) == 0:
            confirm = True
            event += 10
        after_event = <char*>memchr(event, 32, end - event)
        if after_event == NULL or after_event == event or self.memory.used >= self.max_memory:
            return False
        found = look_up(self.events, event, after_event - event)
        binding = None if found == NULL else <Binding>found
        if binding is None and (event[0] == 45 or event[0] == 123 or ends_like_retry(event, after_event)):
            return False
        size = (after_id - p) + 9 + (end - event) + 1
        to = room_for(self.tail, size)
        if confirm:
            memcpy(to, p, after_id + 9 - p)
            memcpy(to + (after_id + 9 - p), event, end - event)
        else:
            memcpy(to, p, size - 1)
        to[size - 1] = 10
        self.route(binding, commit(self.tail, size), event, after_event, end)
        c.publishes = True
        if confirm:
            self.confirm(c, p[:after_id - p])
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
        if (message_id == end or message_id[0] == 45 or consumer_id[0] == 45 or consumer_id[0] == 123
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
            self.ack_id(consumer, message_id, end - message_id)
        return True

    def confirm(self, Connection c, bytes request_id):
        """The answer to a request that is done. All that a client may rely on goes through here."""
        self.say(c, request_id + b" ok \n")

    # ── messages to queues ──

    def publish(self, Connection c, bytes id, bytes event, bytes data):
        """Take an MQKS message."""
        cdef bytes line = id + b" publish " + event + b" " + data + b"\n"
        cdef size_t size = PyBytes_GET_SIZE(line)
        cdef char* to = room_for(self.tail, size)
        cdef char* at
        cdef void* found = look_up(self.events, PyBytes_AS_STRING(event), PyBytes_GET_SIZE(event))
        c.publishes = True
        memcpy(to, PyBytes_AS_STRING(line), size)
        at = to + PyBytes_GET_SIZE(id) + 9
        self.route(
            None if found == NULL else <Binding>found, commit(self.tail, size),
            at, at + PyBytes_GET_SIZE(event), to + size - 1,
        )

    def send(self, Connection c, bytes id, bytes json, queues):
        """Take a SEVX event for these queues."""
        cdef bytes line = id + b" send " + json + b"\n"
        cdef size_t size = PyBytes_GET_SIZE(line)
        cdef size_t holders = 0
        cdef uint64_t position
        cdef Queue q
        c.publishes = True
        memcpy(room_for(self.tail, size), PyBytes_AS_STRING(line), size)
        position = commit(self.tail, size)
        self.published += 1
        for q in queues:
            holders += self.put(q, position)
        hold(self.tail, holders)

    cdef int route(self, Binding binding, uint64_t position, char* event, char* after_event, char* end) except -1:
        """Put a message that is already in the log into its queues."""
        cdef size_t holders = 0
        cdef Py_ssize_t i
        cdef Queue q
        self.published += 1
        if binding is not None:
            for i in range(PyList_GET_SIZE(binding.queues)):
                holders += self.put(<Queue>PyList_GET_ITEM(binding.queues, i), position)
        for i in range(PyList_GET_SIZE(self.everything)):
            holders += self.put(<Queue>PyList_GET_ITEM(self.everything, i), position)
        if self.inspectors or (binding is not None and binding.inspectors):
            data = after_event + 1
            for q in self.handler.inspect(event[:after_event - event], data[:end - data]):
                holders += self.put(q, position)
        hold(self.tail, holders)
        return 0

    cdef inline size_t put(self, Queue q, uint64_t position) except? 9:
        if q.stamp == position:
            return 0
        fifo.push(&q.ready, &self.memory, position)
        q.stamp = position
        q.published += 1
        self.soil(q)
        return 1

    def take_everything(self, Queue q, bint yes):
        """A queue that wants every MQKS message, or no longer does."""
        if yes:
            self.everything.append(q)
        else:
            self.everything.remove(q)

    def inspect_everything(self, int change):
        """Add to the number of patterns that look into the data of every MQKS message."""
        self.inspectors += change

    # ── deliveries out ──

    cdef void soil(self, Queue q) noexcept:
        """Something changed that may allow a delivery from this queue."""
        if not q.dirty and PyList_GET_SIZE(q.consumers) and (q.ready.count or q.returned.count):
            q.dirty = True
            self.dirty_queues.append(q)

    cpdef bint deliver(self) except -1:
        """The end of a turn: give what is ready to consumers with room. False if there was nothing to do."""
        cdef list queues = self.dirty_queues
        cdef Py_ssize_t i
        if not queues:
            return False
        self.dirty_queues = []
        for i in range(PyList_GET_SIZE(queues)):
            self.serve(<Queue>PyList_GET_ITEM(queues, i))
        return True

    cdef int serve(self, Queue q) except -1:
        """Give what is ready to those who have room."""
        cdef Consumer c = None
        cdef heap.Returned again
        cdef bint alone = PyList_GET_SIZE(q.consumers) == 1
        q.dirty = False
        while q.ready.count or q.returned.count:
            if c is None or not alone or not c.has_room():
                c = self.next_with_room(q)
                if c is None:
                    return 0
            if q.returned.count:
                again = heap.heap_pop(&q.returned, &self.memory)
                self.give(q, c, again.item, again.sequence)
            else:
                q.sequence += 1
                self.give(q, c, fifo.pop(&q.ready, &self.memory), q.sequence)
        return 0

    cdef Consumer next_with_room(self, Queue q):
        """Whose turn it is among those with room. None: each will be heard of when it has room again."""
        cdef Py_ssize_t count = PyList_GET_SIZE(q.consumers)
        cdef Py_ssize_t i
        cdef Py_ssize_t at = q.turn
        cdef Consumer c
        for i in range(count):
            if at >= count:
                at = 0
            c = <Consumer>PyList_GET_ITEM(q.consumers, at)
            at += 1
            if c.has_room():
                q.turn = at
                return c
        for i in range(count):
            c = <Consumer>PyList_GET_ITEM(q.consumers, i)
            if not c.starved and waiting(c.connection) >= self.high_water:
                c.starved = True
                if c.connection.starved is None:
                    c.connection.starved = []
                c.connection.starved.append(c)
        return None

    cdef int give(self, Queue q, Consumer c, uint64_t item, uint64_t sequence) except -1:
        cdef uint64_t position = item & POSITION
        cdef Segment* segment = find(self.tail, position)
        cdef char* line = segment.data + (position - segment.start)
        cdef char* after_id = <char*>memchr(line, 32, segment.data + segment.size - line)
        cdef char* end = <char*>memchr(after_id, 10, segment.data + segment.size - after_id)
        cdef char* rest = NULL
        cdef size_t prefix_size = PyBytes_GET_SIZE(c.prefix)
        cdef size_t id_size = after_id - line
        cdef size_t size
        cdef char* to
        cdef bytes body
        cdef Connection connection = c.connection
        cdef Unsettled given
        if item == position:
            # Never retried, and in the consumer's own dialect: the line's own text serves.
            if after_id[1] == 112 and c.dialect == MQKS:            # p of publish
                rest = after_id + 9
                size = prefix_size + id_size + 7 + (end - rest) + 1
                to = self.out_room(connection, size)
                copy_short(to, PyBytes_AS_STRING(c.prefix), prefix_size)
                to += prefix_size
                copy_short(to, line, id_size)
                to += id_size
                memcpy(to, b" event=", 7)
                memcpy(to + 7, rest, end + 1 - rest)
                connection.out.tail += size
            elif after_id[1] == 115 and c.dialect == SEVX:          # s of send
                rest = after_id + 6
                size = prefix_size + id_size + 1 + (end - rest) + 1
                to = self.out_room(connection, size)
                copy_short(to, PyBytes_AS_STRING(c.prefix), prefix_size)
                to += prefix_size
                copy_short(to, line, id_size)
                to += id_size
                to[0] = 32
                memcpy(to + 1, rest, end + 1 - rest)
                connection.out.tail += size
        if rest == NULL:
            body = self.handler.render(line[:end - line], c.dialect, self.retry_of(q, item))
            body = c.prefix + body + b"\n"
            self.write(connection, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
        given.item = item
        given.sequence = sequence
        given.end = connection.sent + waiting(connection)
        unsettled.add(&c.ring, &self.memory, self.tail, self.seed, given)
        q.unsettled += 1
        q.delivered += 1
        c.delivered += 1
        self.delivered += 1
        if not c.manual_ack and not c.settling:
            c.settling = True
            if connection.settling is None:
                connection.settling = []
            connection.settling.append(c)
        return 0

    cdef char* out_room(self, Connection c, size_t size) except NULL:
        if c.out.data == NULL and c.large:
            c.out = buffer.Buffer(self.large_block(), 0, 0, LARGE)
        if not c.dirty:
            c.dirty = True
            self.dirty_connections.append(c)
        return buffer.reserve(&c.out, &self.memory, size)

    cdef int write(self, Connection c, const char* text, size_t size) except -1:
        if not c.gone:
            memcpy(self.out_room(c, size), text, size)
            c.out.tail += size
        return 0

    cdef char* large_block(self) except NULL:
        if self.spares:
            self.spares -= 1
            return self.spare[self.spares]
        return <char*>take(&self.memory, LARGE)

    cdef void drop_out(self, Connection c) noexcept:
        c.large = c.out.capacity > LARGE // 8
        if c.out.capacity == LARGE and self.spares < SPARES:
            self.spare[self.spares] = c.out.data
            self.spares += 1
            c.out = buffer.Buffer(NULL, 0, 0, 0)
        else:
            buffer.release(&c.out, &self.memory)

    cdef int took(self, Connection c, size_t size) except -1:
        cdef Consumer consumer
        cdef list some
        c.out.head += size
        c.sent += size
        if c.out.head == c.out.tail:
            self.drop_out(c)
        if c.settling:
            some = c.settling
            c.settling = []
            for consumer in some:
                consumer.settling = False
                if not consumer.manual_ack:
                    self.settle_sent(consumer)
                    if consumer.ring.live:
                        consumer.settling = True
                        c.settling.append(consumer)
        if waiting(c) < self.high_water:
            if c.starved:
                some = c.starved
                c.starved = []
                for consumer in some:
                    consumer.starved = False
                    if not consumer.gone:
                        self.soil(consumer.queue)
            if c.due:
                due = c.due
                c.due = None
                for consumer in due:
                    if not consumer.gone or consumer.queue.gone:
                        self.tell(consumer)
        return 0

    # ── consumers ──

    def join(self, Connection c, bytes id, Queue q, int dialect, bint manual_ack, size_t prefetch):
        """A new consumer of this queue."""
        cdef Consumer consumer = Consumer(id, c, q)
        consumer.dialect = dialect
        consumer.manual_ack = manual_ack
        consumer.prefetch = prefetch
        if c.consumers is None:
            c.consumers = {}
        c.consumers[id] = consumer
        q.consumers.append(consumer)
        self.soil(q)
        return consumer

    def change(self, Consumer c, int dialect, bint manual_ack, size_t prefetch):
        """New options for a consumer that stays."""
        if c.manual_ack and not manual_ack:
            self.return_left(c, True)
            if c.ring.live and not c.settling:
                c.settling = True
                if c.connection.settling is None:
                    c.connection.settling = []
                c.connection.settling.append(c)
        c.dialect = dialect
        c.manual_ack = manual_ack
        c.prefetch = prefetch
        self.soil(c.queue)

    def leave(self, Consumer c, bint disconnected):
        """The consumer takes no more; what it has not settled goes back to its queue."""
        cdef Py_ssize_t at = c.queue.consumers.index(c)
        self._forget(c)
        del c.queue.consumers[at]
        if at < c.queue.turn:
            c.queue.turn -= 1
        if c.manual_ack or disconnected:
            self.return_unsettled(c, disconnected)

    def delete_queue(self, Queue q):
        """Drop a queue and all it holds; its consumers are gone."""
        cdef Consumer c
        q.gone = True
        for c in q.consumers:
            self._forget(c)
            unsettled.drop_index(&c.ring, &self.memory)
            while c.ring.live:
                self.settle(c, c.ring.head)
        while q.ready.count:
            let_go(self.tail, fifo.pop(&q.ready, &self.memory) & POSITION)
        while q.returned.count:
            let_go(self.tail, heap.heap_pop(&q.returned, &self.memory).item & POSITION)
        fifo.clear(&q.ready, &self.memory)
        left = q.consumers
        q.consumers = []
        return left

    def _forget(self, Consumer c):
        c.gone = True
        del c.connection.consumers[c.id]
        if c.connection.recent is c:
            c.connection.recent = None

    def ack(self, Consumer c, bytes id):
        """Settle the first delivery of this message id, or all that have left (None)."""
        cdef uint64_t number
        cdef uint64_t last
        if not c.manual_ack:
            return
        if id is not None:
            self.ack_id(c, PyBytes_AS_STRING(id), PyBytes_GET_SIZE(id))
            return
        unsettled.drop_index(&c.ring, &self.memory)
        number = c.ring.head
        last = c.ring.tail
        while number < last and c.ring.live:
            if self._has_left(c, number):
                self.settle(c, number)
                self.acked += 1
                c.queue.acked += 1
            number += 1
        self.soil(c.queue)

    def reject(self, Consumer c, bytes id):
        """Put the first delivery of this message id, or all that have left (None), at the tail of the queue."""
        cdef uint64_t number
        cdef uint64_t last
        if not c.manual_ack:
            return
        if id is not None:
            number = unsettled.take_id(
                &c.ring, &self.memory, self.tail, self.seed, PyBytes_AS_STRING(id), PyBytes_GET_SIZE(id)
            )
            if number != NONE:
                self._to_tail(c, number)
        else:
            unsettled.drop_index(&c.ring, &self.memory)
            number = c.ring.head
            last = c.ring.tail
            while number < last and c.ring.live:
                if self._has_left(c, number):
                    self._to_tail(c, number)
                number += 1
        self.soil(c.queue)

    cdef bint _has_left(self, Consumer c, uint64_t number) noexcept:
        cdef Unsettled* given = unsettled.slot(&c.ring, number)
        return given.item != NONE and given.end <= c.connection.sent

    cdef int _to_tail(self, Consumer c, uint64_t number) except -1:
        cdef uint64_t item = unsettled.slot(&c.ring, number).item
        fifo.push(&c.queue.ready, &self.memory, self.retried(c.queue, item, 1))
        unsettled.settled(&c.ring, &self.memory, number)
        c.queue.unsettled -= 1
        c.queue.rejected += 1
        self.rejected += 1
        return 0

    cdef bint ack_id(self, Consumer c, const char* id, size_t size) except -1:
        cdef uint64_t number = unsettled.take_id(&c.ring, &self.memory, self.tail, self.seed, id, size)
        if number == NONE:
            return False
        self.settle(c, number)
        c.queue.acked += 1
        self.acked += 1
        if c.prefetch:
            self.soil(c.queue)
        return True

    cdef int settle(self, Consumer c, uint64_t number) except -1:
        """Done with this delivery. The caller has taken it out of the ring's index."""
        cdef uint64_t item = unsettled.slot(&c.ring, number).item
        if item >> RETRY == MANY_RETRIES:
            del c.queue.retries[item & POSITION]
        let_go(self.tail, item & POSITION)
        c.queue.unsettled -= 1
        unsettled.settled(&c.ring, &self.memory, number)
        return 0

    cdef int settle_sent(self, Consumer c) except -1:
        """Auto ack: what has left is settled."""
        cdef unsettled.Ring* ring = &c.ring
        cdef Queue q = c.queue
        cdef uint64_t sent = c.connection.sent
        cdef Unsettled* given
        cdef uint64_t last = ring.tail
        unsettled.drop_index(ring, &self.memory)
        while ring.head < last:
            given = unsettled.slot(ring, ring.head)
            if given.item == NONE:          # acked by hand before the consumer changed to auto ack
                ring.head += 1
                continue
            if given.end > sent:
                break
            if given.item >> RETRY == MANY_RETRIES:
                del q.retries[given.item & POSITION]
            let_go(self.tail, given.item & POSITION)
            ring.head += 1
            ring.live -= 1
            q.unsettled -= 1
        if ring.live == 0:
            unsettled.emptied(ring, &self.memory)
        if c.prefetch:
            self.soil(c.queue)
        return 0

    cdef int return_unsettled(self, Consumer c, bint disconnected) except -1:
        """All that a consumer held goes back; nobody has seen what was still in the buffer of a dead connection."""
        self.return_left(c, disconnected)
        while c.ring.live:
            self.return_to_queue(c, c.ring.head, 0)
        return 0

    cdef int return_left(self, Consumer c, bint only_left) except -1:
        """Deliveries go back with one retry more: those that have left, or all of them."""
        cdef uint64_t number = c.ring.head
        cdef uint64_t last = c.ring.tail
        unsettled.drop_index(&c.ring, &self.memory)
        while number < last and c.ring.live:
            if self._has_left(c, number) or (not only_left and unsettled.slot(&c.ring, number).item != NONE):
                self.return_to_queue(c, number, 1)
            number += 1
        return 0

    cdef int return_to_queue(self, Consumer c, uint64_t number, int more) except -1:
        cdef Unsettled* given = unsettled.slot(&c.ring, number)
        cdef Queue q = c.queue
        if q.gone:
            return self.settle(c, number)
        heap.heap_push(&q.returned, &self.memory, self.retried(q, given.item, more), given.sequence)
        unsettled.settled(&c.ring, &self.memory, number)
        q.unsettled -= 1
        self.soil(q)
        return 0

    cdef uint64_t retried(self, Queue q, uint64_t item, int more) except? 9:
        """The item with so many retries more."""
        cdef uint64_t position = item & POSITION
        cdef uint64_t count = item >> RETRY
        if more == 0:
            return item
        if count + 1 < MANY_RETRIES:
            return item + (<uint64_t>1 << RETRY)
        q.retries[position] = q.retries.get(position, count) + 1
        return position | (<uint64_t>MANY_RETRIES << RETRY)

    cdef object retry_of(self, Queue q, uint64_t item):
        cdef uint64_t count = item >> RETRY
        return count if count < MANY_RETRIES else q.retries[item & POSITION]
