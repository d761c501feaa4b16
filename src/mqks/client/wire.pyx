"""The compiled half of the codec: what is done for each message. It makes ids and lines to publish, reads deliveries, and
cuts replies and records of histories.

It knows nothing of connections. All lines but deliveries go to the session, in Python. Text is UTF-8 with surrogateescape, so
data that is no text comes and goes unharmed.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint32_t, uint64_t
from libc.errno cimport EINTR, errno
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove

import secrets

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 most)
    void* PyUnicode_1BYTE_DATA(object text)
    bint PyUnicode_IS_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    bint PyUnicode_CheckExact(object thing)
    Py_UCS4 PyUnicode_READ_CHAR(object text, Py_ssize_t index)
    Py_ssize_t PyUnicode_FindChar(object text, Py_UCS4 character, Py_ssize_t start, Py_ssize_t end, int direction) except -2
    str PyUnicode_Substring(object text, Py_ssize_t start, Py_ssize_t end)

cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT, MSG_NOSIGNAL
    ssize_t send(int fd, const void* data, size_t size, int flags)

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    ctypedef long time_t
    struct tm:
        int tm_year
        int tm_mon
        int tm_mday
        int tm_hour
        int tm_min
        int tm_sec
    int CLOCK_REALTIME
    int clock_gettime(int clock, timespec* now)
    tm* gmtime_r(const time_t* second, tm* day)

cdef const char* ALPHABET = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
cdef enum:
    ID_SIZE = 24
    SUFFIXES = 14776336         # 62 ** 4

cdef Py_ssize_t MOST_KNOWN = 10_000
cdef Py_ssize_t FIRST_ROOM = 128 << 10, MOST_ROOM = 1 << 20     # of the buffer for lines


cdef class Ids:
    """Makes dtids that never decrease, whatever the clock does, and that no other call here makes again."""

    cdef uint64_t microsecond
    cdef uint64_t chance
    cdef uint32_t suffix
    cdef time_t second
    cdef char[ID_SIZE] text
    cdef object wall                    # a clock in place of the system's

    def __init__(self, wall=None):
        self.wall = wall
        self.chance = secrets.randbits(63) | 1
        self.second = -1

    def __call__(self):
        return self.make()

    cdef str make(self):
        cdef timespec now
        cdef tm day
        cdef uint64_t microsecond
        cdef uint32_t rest
        cdef int at
        if self.wall is None:
            clock_gettime(CLOCK_REALTIME, &now)
            microsecond = <uint64_t>now.tv_sec * 1000000 + <uint64_t>now.tv_nsec // 1000
        else:
            microsecond = int(self.wall() * 1000000)
        if microsecond > self.microsecond:
            self.microsecond = microsecond
            self.chance ^= self.chance << 13
            self.chance ^= self.chance >> 7
            self.chance ^= self.chance << 17
            self.suffix = self.chance % (SUFFIXES // 2)
        else:
            self.suffix += 1
            if self.suffix == SUFFIXES:
                self.microsecond += 1
                self.suffix = 0
        if <time_t>(self.microsecond // 1000000) != self.second:
            self.second = self.microsecond // 1000000
            gmtime_r(&self.second, &day)
            self.write(0, 4, day.tm_year + 1900)
            self.write(4, 2, day.tm_mon + 1)
            self.write(6, 2, day.tm_mday)
            self.write(8, 2, day.tm_hour)
            self.write(10, 2, day.tm_min)
            self.write(12, 2, day.tm_sec)
        self.write(14, 6, self.microsecond % 1000000)
        rest = self.suffix
        for at in range(23, 19, -1):
            self.text[at] = ALPHABET[rest % 62]
            rest //= 62
        text = PyUnicode_New(ID_SIZE, 127)
        memcpy(PyUnicode_1BYTE_DATA(text), self.text, ID_SIZE)
        return text

    cdef void write(self, int start, int digits, uint64_t number) noexcept:
        cdef int at
        for at in range(start + digits - 1, start - 1, -1):
            self.text[at] = 48 + number % 10
            number //= 10


cdef class Lines:
    """Lines that wait to be sent, as the bytes that will be.

    `publish` may be called from any thread at any time: nothing in it lets another thread run. Who does more than one
    step with the lines does so within `with lines`, and publishes are sent to the session's lock meanwhile.
    """

    cdef char* buffer
    cdef Py_ssize_t room
    cdef Py_ssize_t head                # so many bytes of the buffer were sent
    cdef Py_ssize_t tail
    cdef readonly uint64_t unconfirmed  # publishes without confirm that were ever put here
    cdef public Py_ssize_t most         # bytes that may wait; more has to be looked at first
    cdef public bint shut               # nothing is to be put here any more
    cdef readonly bint held             # somebody is amid something
    cdef Ids own_ids
    cdef object new_id
    cdef set known                      # events whose names were found good

    def __init__(self, new_id, most=PY_SSIZE_T_MAX):
        self.new_id = new_id
        self.most = most
        self.own_ids = new_id if type(new_id) is Ids else None
        self.known = set()

    def __dealloc__(self):
        free(self.buffer)

    def __enter__(self):
        self.held = True
        return self

    def __exit__(self, *_):
        self.held = False

    @property
    def size(self):
        """Bytes that wait."""
        return self.tail - self.head

    cdef char* place_for(self, Py_ssize_t size) except NULL:
        """Where so many bytes may be written."""
        cdef Py_ssize_t room = self.room
        cdef char* grown
        if self.tail + size > room and self.head:
            self.drop_sent()
        if self.tail + size > room:
            room = max(2 * room, self.tail + size, FIRST_ROOM)
            grown = <char*>realloc(self.buffer, room)
            if grown == NULL:
                raise MemoryError
            self.buffer, self.room = grown, room
        self.tail += size
        return self.buffer + self.tail - size

    cdef void drop_sent(self) noexcept:
        """But for the beginning of a line of which a part was sent: it may have to be said again."""
        cdef Py_ssize_t start = self.head
        while start > 0 and self.buffer[start - 1] != b"\n":
            start -= 1
        if start > 0:
            memmove(self.buffer, self.buffer + start, self.tail - start)
            self.head -= start
            self.tail -= start

    def send(self, int fd):
        """Give to a socket what it takes now; answers whether that was all. One step, which no signal can cut."""
        cdef ssize_t sent
        while self.head < self.tail:
            sent = send(fd, self.buffer + self.head, self.tail - self.head, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent < 0:
                if errno == EINTR:
                    continue
                return False
            self.head += sent
        self.clear()
        return True

    cdef void clear(self) noexcept:
        self.head = self.tail = 0
        if self.room > MOST_ROOM:
            free(self.buffer)
            self.buffer, self.room = NULL, 0

    def put(self, str line):
        data = line.encode("utf-8", "surrogateescape")
        memcpy(self.place_for(len(data)), PyBytes_AS_STRING(data), len(data))

    def put_request(self, str id, str request):
        """Put the line of a request, of which the caller has no need."""
        cdef Py_ssize_t id_size, size
        cdef char* at
        if not PyUnicode_IS_ASCII(id) or not PyUnicode_IS_ASCII(request):
            self.put(f"{id} {request}\n")
            return
        id_size, size = PyUnicode_GET_LENGTH(id), PyUnicode_GET_LENGTH(request)
        at = self.place_for(id_size + size + 2)
        memcpy(at, PyUnicode_1BYTE_DATA(id), id_size)
        at[id_size] = b" "
        at += id_size + 1
        memcpy(at, PyUnicode_1BYTE_DATA(request), size)
        at[size] = b"\n"

    def put_unconfirmed(self, str line):
        self.put(line)
        self.unconfirmed += 1

    def is_good(self, event, data):
        """False: it has to be looked at before it is put anywhere."""
        return event in self.known and PyUnicode_CheckExact(data) and is_plain(data)

    def publish(self, event, data):
        """Put a publish without confirm; answers its id, or None for what has to be looked at first."""
        cdef Py_ssize_t event_size, data_size
        cdef char* at
        if (self.shut or self.held or self.tail - self.head >= self.most
                or not PyUnicode_CheckExact(event) or event not in self.known
                or not PyUnicode_CheckExact(data) or not is_plain(data)):
            return None
        cdef str id = self.own_ids.make() if self.own_ids is not None else self.new_id()
        cdef Py_ssize_t id_size = PyUnicode_GET_LENGTH(id)
        event_size, data_size = PyUnicode_GET_LENGTH(event), PyUnicode_GET_LENGTH(data)
        at = self.place_for(id_size + event_size + data_size + 11)
        memcpy(at, PyUnicode_1BYTE_DATA(id), id_size)
        memcpy(at + id_size, b" publish ", 9)
        at += id_size + 9
        memcpy(at, PyUnicode_1BYTE_DATA(event), event_size)
        at[event_size] = b" "
        at += event_size + 1
        memcpy(at, PyUnicode_1BYTE_DATA(data), data_size)
        at[data_size] = b"\n"
        self.unconfirmed += 1
        return id

    def know(self, str event):
        """A good name, which need not be looked at again."""
        if not PyUnicode_IS_ASCII(event):
            return
        if len(self.known) >= MOST_KNOWN:
            self.known.clear()
        self.known.add(event)

    def take(self):
        """All of them, to be sent."""
        data = PyBytes_FromStringAndSize(self.buffer + self.head, self.tail - self.head)
        self.clear()
        return data

    def piece(self, Py_ssize_t most):
        """The first of them, so many bytes at most, to be sent: for the lines it is as if they were."""
        cdef Py_ssize_t size = min(most, self.tail - self.head)
        data = PyBytes_FromStringAndSize(self.buffer + self.head, size)
        self.head += size
        if self.head == self.tail:
            self.clear()
        return data

    @property
    def waiting(self):
        """What was put here and not sent, line by line; a line of which a part was sent is one of them."""
        self.drop_sent()
        lines = PyBytes_FromStringAndSize(self.buffer, self.tail).decode("utf-8", "surrogateescape").split("\n")
        return [f"{line}\n" for line in lines[:-1]]

    @property
    def begun(self):
        """Bytes of the first waiting line that were sent."""
        self.drop_sent()
        return self.head if self.head < self.tail else 0

    def replace(self, lines, Py_ssize_t begun=0):
        """Have these in place of what waits; of the first, so many bytes were sent."""
        lines = list(lines)
        self.head = self.tail = 0
        for line in lines:
            self.put(line)
        self.head = min(begun, self.tail)


cdef bint is_plain(str data) noexcept:
    """ASCII without what a line cannot carry; what is not is looked at in Python."""
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(data)
    cdef const char* text
    if not PyUnicode_IS_ASCII(data):
        return False
    if size == 0:
        return True
    text = <const char*>PyUnicode_1BYTE_DATA(data)
    return (text[size - 1] != b"\r" and memchr(text, b"\n", size) == NULL and memchr(text, b"\t", size) == NULL
            and memchr(text, 0, size) == NULL)


cdef class Message:
    """A message as a consumer got it. What settles it, `ack` and `reject`, is added by each client in its own way."""

    cdef readonly str id
    cdef readonly str event
    cdef readonly str data
    cdef readonly int retry
    cdef readonly str consumer_id       # the consumer's name on the connection over which it came
    cdef public object stream           # by which it came and is settled; set when it is handed to the user

    def __init__(self, str id, str event, str data, int retry, str consumer_id):
        self.id = id
        self.event = event
        self.data = data
        self.retry = retry
        self.consumer_id = consumer_id

    @property
    def json(self):
        import json

        return json.loads(self.data)

    @property
    def bytes(self):
        return self.data.encode("utf-8", "surrogateescape")

    def __repr__(self):
        retry = f", retry={self.retry}" if self.retry else ""
        return f"<message {self.id} event={self.event}{retry} {self.data[:80]!r}>"


def parse_reply(str line):
    """Its id, whether it is ok and no error, and its data: with an error the error_id. ValueError: it is no reply."""
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(line)
    cdef Py_ssize_t word = PyUnicode_FindChar(line, u" ", 0, size, 1) + 1
    cdef Py_ssize_t end = PyUnicode_FindChar(line, u" ", word, size, 1)
    cdef bint ok
    if end < 0:
        end = size
    ok = (end - word == 2 and PyUnicode_READ_CHAR(line, word) == u"o" and PyUnicode_READ_CHAR(line, word + 1) == u"k")
    if word == 0 or not (ok or PyUnicode_Substring(line, word, end) == "error"):
        raise ValueError(f"not an answer: {line[:100]!r}")
    return PyUnicode_Substring(line, 0, word - 1), ok, PyUnicode_Substring(line, end + 1, size) if end < size else ""


def parse_history(str answer):
    """A record: position, id, event and data. Or the place where the history, or a page of it, ends."""
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(answer)
    cdef Py_ssize_t first, second, third
    if answer.startswith("--end "):
        return PyUnicode_Substring(answer, 6, size)
    first = PyUnicode_FindChar(answer, u" ", 0, size, 1)
    second = PyUnicode_FindChar(answer, u" ", first + 1, size, 1) if first >= 0 else -1
    third = PyUnicode_FindChar(answer, u" ", second + 1, size, 1) if second >= 0 else -1
    if third < 0:
        raise ValueError(f"not a record of a history: {answer[:100]!r}")
    return (
        PyUnicode_Substring(answer, 0, first),
        PyUnicode_Substring(answer, first + 1, second),
        PyUnicode_Substring(answer, min(second + 7, third), third),     # after `event=`
        PyUnicode_Substring(answer, third + 1, size),
    )


cdef inline str text_of(const char* start, const char* end):
    return PyUnicode_DecodeUTF8(start, end - start, "surrogateescape")


cdef class Reader:
    """Reads what comes: deliveries of consumers into their batches, all other lines to `other`."""

    cdef dict links                     # consumer id, as bytes → the wanted consumer; others may stand here too
    cdef object other
    cdef bytes properties               # of the last message: most have the same
    cdef str event
    cdef int retry

    def __init__(self, dict links, other):
        self.links = links
        self.other = other
        self.properties = b""

    def read(self, bytes data, list touched):
        """Read the lines of the data; `touched` gets those consumers whose batch was empty. Answers how many bytes
        were whole lines."""
        cdef const char* begin = PyBytes_AS_STRING(data)
        cdef const char* end = begin + PyBytes_GET_SIZE(data)
        cdef const char* line = begin
        cdef const char* newline
        cdef const char* space
        cdef bytes prefix = b""         # "{consumer_id} ok " of the line before: the next one most often has it too
        cdef Py_ssize_t size = 0
        cdef list batch = None
        cdef type kind = None
        cdef str consumer_id = None
        cdef Message message
        while line < end:
            newline = <const char*>memchr(line, b"\n", end - line)
            if newline == NULL:
                break
            if size == 0 or newline - line <= size or memcmp(line, PyBytes_AS_STRING(prefix), size) != 0:
                size = 0
                space = <const char*>memchr(line, b" ", newline - line)
                wanted = None if space == NULL else self.links.get(PyBytes_FromStringAndSize(line, space - line))
                if (wanted is not None and wanted.kind is not None
                        and newline - space > 4 and memcmp(space, b" ok ", 4) == 0):
                    prefix = PyBytes_FromStringAndSize(line, space - line + 4)
                    size = PyBytes_GET_SIZE(prefix)
                    batch, kind, consumer_id = wanted.batch, wanted.kind, wanted.id
            if size and (line[size] != b"-" or line[size + 1] != b"-"):
                message = Message.__new__(kind)
                self.fill(message, line + size, newline)
                message.consumer_id = consumer_id
                if not batch:
                    touched.append(wanted)
                batch.append(message)
            else:
                size = 0                # whatever it is may change what was known
                self.other(text_of(line, newline))
            line = newline + 1
        return line - begin

    cdef int fill(self, Message message, const char* start, const char* end) except -1:
        """From `{id} event={event}[,retry={n}] {data}`."""
        cdef const char* properties = <const char*>memchr(start, b" ", end - start)
        cdef const char* data
        cdef Py_ssize_t size
        data = NULL if properties == NULL else <const char*>memchr(properties + 1, b" ", end - properties - 1)
        if data == NULL or data - properties < 7 or memcmp(properties + 1, b"event=", 6) != 0:
            raise ValueError(f"not a message: {text_of(start, end)[:100]!r}")
        message.id = text_of(start, properties)
        size = data - properties
        if size != PyBytes_GET_SIZE(self.properties) or memcmp(properties, PyBytes_AS_STRING(self.properties), size) != 0:
            self.learn(PyBytes_FromStringAndSize(properties, size))
        message.event = self.event
        message.retry = self.retry
        message.data = text_of(data + 1, end)
        return 0

    cdef int learn(self, bytes properties) except -1:
        """The event and the retry of these properties, which begin with ` event=`."""
        self.event, self.retry = properties[7:].decode("utf-8", "surrogateescape"), 0
        name, found, count = self.event.rpartition(",retry=")
        if found and count.isascii() and count.isdecimal():     # else it is a part of the name
            self.event, self.retry = name, int(count)
        self.properties = properties
        return 0
