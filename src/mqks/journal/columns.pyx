"""The messages of journal batches as columns, in the form that Arrow has them: checked, cut and filtered in one go.

For whoever reads a journal in bulk (Spark, through `pyspark_mqks`). It knows the format of docs/JOURNAL.md, touches nothing but the
bytes it is given, and needs no Arrow: what it hands out are plain buffers.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

from mqks.core.crc cimport crc32
from mqks.core.text cimport NO_NUMBER, ends_like_retry, number

from mqks.journal.messages import event_of

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline int mqks_is_ascii(const char *text, size_t size) {
        uint64_t found = 0, word;
        size_t i = 0;
        for (; i + 8 <= size; i += 8) {
            memcpy(&word, text + i, 8);
            found |= word;
        }
        for (; i < size; i++)
            found |= (uint64_t)(unsigned char)text[i];
        return !(found & 0x8080808080808080ULL);
    }
    /* As strict as Python: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
    static inline int mqks_is_utf8(const char *text, size_t size) {
        const unsigned char *at = (const unsigned char *)text, *end = at + size;
        while (at < end) {
            unsigned char c = *at;
            size_t more;
            unsigned char low = 0x80, high = 0xBF;
            if (c < 0x80) { at++; continue; }
            if (c >= 0xC2 && c <= 0xDF) more = 1;
            else if (c >= 0xE0 && c <= 0xEF) { more = 2; if (c == 0xE0) low = 0xA0; if (c == 0xED) high = 0x9F; }
            else if (c >= 0xF0 && c <= 0xF4) { more = 3; if (c == 0xF0) low = 0x90; if (c == 0xF4) high = 0x8F; }
            else return 0;
            if ((size_t)(end - at) <= more || at[1] < low || at[1] > high) return 0;
            for (size_t i = 2; i <= more; i++)
                if ((at[i] & 0xC0) != 0x80) return 0;
            at += more + 1;
        }
        return 1;
    }
    """
    bint is_ascii "mqks_is_ascii" (const char* text, size_t size) noexcept nogil
    bint is_utf8 "mqks_is_utf8" (const char* text, size_t size) noexcept nogil

cdef enum:
    HEADER = 111
    MOST_DEPTH = 64             # of JSON that is not left to Python
    MOST_EVENTS = 65536         # that are remembered as wanted or not
    POSITION = 1
    TIME = 2
    ID = 4
    ACTION = 8
    EVENT = 16
    DATA = 32
    RAW = 64

NAMES = ("position", "time", "id", "action", "event", "data", "raw")


cdef struct Bytes:
    char* data
    size_t size
    size_t room


cdef struct Text:               # a column of strings: all of them one after the other, and where each begins
    Bytes text
    Bytes starts


cdef char* reserve(Bytes* out, size_t size) except NULL:
    """Where the next so many bytes go; the caller then adds to `size` what it has written."""
    cdef size_t room = out.room
    cdef char* data
    if out.size + size >= room:
        room = 2 * room + size + 4096
        data = <char*>realloc(out.data, room)
        if data == NULL:
            raise MemoryError
        out.data = data
        out.room = room
    return out.data + out.size


cdef int put_number(Bytes* out, int64_t value) except -1:
    memcpy(reserve(out, 8), &value, 8)
    out.size += 8
    return 0


cdef int put(Text* out, const char* text, size_t size) except -1:
    """One more string: its start is known, its end is where the next one begins."""
    cdef int32_t start = <int32_t>out.text.size
    if out.text.size + size > INT32_MAX:
        raise OverflowError("more text than one Arrow column can have: take what is there before you feed more")
    memcpy(reserve(&out.starts, 4), &start, 4)
    out.starts.size += 4
    memcpy(reserve(&out.text, size), text, size)
    out.text.size += size
    return 0


cdef int put_text(Text* out, const char* text, size_t size, bint ascii) except -1:
    """As put, but what is no UTF-8 is replaced."""
    cdef bytes replaced
    if ascii or is_utf8(text, size):
        return put(out, text, size)
    replaced = text[:size].decode("utf-8", "replace").encode()
    return put(out, PyBytes_AS_STRING(replaced), PyBytes_GET_SIZE(replaced))


cdef bytes taken(Bytes* out):
    cdef bytes data = PyBytes_FromStringAndSize(out.data, out.size) if out.size else b""
    out.size = 0
    return data


cdef tuple taken_text(Text* out):
    cdef int32_t end = <int32_t>out.text.size
    memcpy(reserve(&out.starts, 4), &end, 4)
    out.starts.size += 4
    return taken(&out.starts), taken(&out.text)


cdef int64_t microseconds(const char* dtid) noexcept:
    """Since 1970, of a dtid; -1: it is none. A day beyond the end of its month counts into the next one."""
    cdef uint64_t year = number(dtid, 4, 10)
    cdef uint64_t month = number(dtid + 4, 2, 10)
    cdef uint64_t day = number(dtid + 6, 2, 10)
    cdef uint64_t hour = number(dtid + 8, 2, 10)
    cdef uint64_t minute = number(dtid + 10, 2, 10)
    cdef uint64_t second = number(dtid + 12, 2, 10)
    cdef uint64_t micro = number(dtid + 14, 6, 10)
    cdef int64_t years, days
    if year - 1 >= 9999 or month - 1 >= 12 or day - 1 >= 31 or hour >= 24 or minute >= 60 or second >= 60 or micro == NO_NUMBER:
        return -1
    # Years that begin in March have their leap day last.
    years = <int64_t>year - (1 if month <= 2 else 0)
    days = 365 * years + years // 4 - years // 100 + years // 400
    days += (153 * ((<int64_t>month + 9) % 12) + 2) // 5 + <int64_t>day - 1 - 719468
    return ((days * 24 + <int64_t>hour) * 60 + <int64_t>minute) * 60000000 + <int64_t>(second * 1000000 + micro)


cdef inline const char* past_word(const char* word, const char* end) noexcept:
    """What follows the word and the space after it; the end, if there is nothing."""
    cdef const char* space = <const char*>memchr(word, 32, end - word)
    return end if space == NULL else space + 1


cdef inline size_t word_size(const char* word, const char* following) noexcept:
    return following - word - (1 if following > word and following[-1] == 32 else 0)


cdef const char* past_spaces(const char* at, const char* end) noexcept:
    while at < end and at[0] in (32, 9, 13, 10):
        at += 1
    return at


cdef bytes name_in(const char* text, const char* end):
    """The event of a SEVX message that a broker took, as `event_of` tells it, without reading JSON where its text is plain."""
    cdef const char* at = past_spaces(text, end)
    cdef const char* token
    cdef const char* name = NULL
    cdef size_t name_size = 0
    cdef int depth = 0
    cdef bint is_key = False
    if at == end or at[0] != 123 or memchr(text, 92, end - text) != NULL:
        return event_of(text[:end - text])
    while at < end:
        if at[0] == 34:
            token = at + 1
            at = <const char*>memchr(token, 34, end - token)
            if at == NULL:
                return event_of(text[:end - text])
            if is_key and depth == 1 and at - token == 5 and memcmp(token, b"event", 5) == 0:
                at = past_spaces(at + 1, end)
                at = past_spaces(at + 1, end)       # after the colon
                name_size = 0
                if at >= end:
                    return event_of(text[:end - text])
                if at[0] != 34:
                    is_key = False
                    continue
                name = at + 1
                at = <const char*>memchr(name, 34, end - name)
                if at == NULL:
                    return event_of(text[:end - text])
                name_size = at - name
            is_key = False
        elif at[0] == 123 or at[0] == 91:
            depth += 1
            is_key = at[0] == 123
            if depth > MOST_DEPTH:
                return event_of(text[:end - text])
        elif at[0] == 125 or at[0] == 93:
            depth -= 1
        elif at[0] == 44:
            is_key = True
        at += 1
    if depth != 0:
        return event_of(text[:end - text])
    if name_size == 0:
        return b""
    if name[0] == 45 or name[0] == 123 or memchr(name, 32, name_size) != NULL or ends_like_retry(name, name + name_size) \
            or not is_utf8(text, end - text):
        return event_of(text[:end - text])
    return name[:name_size]


cdef class Columns:
    cdef readonly size_t rows
    cdef readonly str why
    cdef readonly size_t need
    cdef tuple _names
    cdef int _wanted
    cdef uint64_t _start
    cdef uint64_t _stop
    cdef object _wants
    cdef dict _known
    cdef Bytes _position
    cdef Bytes _time
    cdef Text _id
    cdef Text _action
    cdef Text _event
    cdef Text _data
    cdef Text _raw
    cdef Bytes _is_raw

    def __init__(self, names, *, uint64_t start=0, uint64_t stop=(1 << 63) - 1, wants=None):
        self._names = tuple(names)
        for name in self._names:
            self._wanted |= 1 << NAMES.index(name)
        self._start = start
        self._stop = stop
        self._wants = wants
        self._known = {}
        self.why = ""

    def __dealloc__(self):
        free(self._position.data)
        free(self._time.data)
        free(self._id.text.data)
        free(self._id.starts.data)
        free(self._action.text.data)
        free(self._action.starts.data)
        free(self._event.text.data)
        free(self._event.starts.data)
        free(self._data.text.data)
        free(self._data.starts.data)
        free(self._raw.text.data)
        free(self._raw.starts.data)
        free(self._is_raw.data)

    @property
    def size(self):
        """Bytes of the strings that wait."""
        return self._id.text.size + self._action.text.size + self._event.text.size + self._data.text.size + self._raw.text.size

    def feed(self, bytes piece, uint64_t position, uint64_t stop=(1 << 63) - 1):
        """Adds what is in the whole and valid batches at the start of the piece that begin before `stop`; answers their bytes."""
        cdef const char* text = PyBytes_AS_STRING(piece)
        cdef size_t size = PyBytes_GET_SIZE(piece)
        cdef size_t at = 0
        cdef size_t batch
        cdef uint64_t lines
        cdef int64_t time
        self.why = ""
        self.need = 0
        while at < size:
            if position + at >= stop:
                self.why = "stop"
                break
            if size - at < HEADER:
                self.why = "short"
                self.need = HEADER
                break
            time = microseconds(text + at)
            lines = number(text + at + 52, 10, 10)
            if time == -1 or lines == NO_NUMBER or memcmp(text + at + 24, b" batch ", 7) != 0 \
                    or number(text + at + 31, 20, 10) != position + at:
                self.why = "bad"
                break
            batch = HEADER + lines
            if batch > size - at:
                self.why = "short"
                self.need = batch
                break
            if crc32(crc32(crc32(0, text + at, 93), b"00000000", 8), text + at + 101, batch - 101) != number(text + at + 93, 8, 16):
                self.why = "bad"
                break
            if position + at + batch > self._start and position + at < self._stop:
                self._add(text + at + HEADER, lines, position + at + HEADER, time)
            at += batch
        return at

    cdef int _add(self, const char* line, size_t size, uint64_t position, int64_t time) except -1:
        """The lines of a batch."""
        cdef const char* end = line + size
        cdef const char* newline
        cdef const char* after_id
        cdef const char* action
        cdef const char* rest
        cdef const char* name
        cdef size_t name_size
        cdef bytes event
        cdef bint is_send
        cdef bint needs_event = self._wants is not None or self._wanted & EVENT
        cdef bint ascii = is_ascii(line, size)
        while line < end:
            newline = <const char*>memchr(line, 10, end - line)
            if newline == NULL:
                newline = end
            after_id = <const char*>memchr(line, 32, newline - line)
            if after_id != NULL and self._start <= position < self._stop:
                action = after_id + 1
                rest = past_word(action, newline)
                is_send = newline - action >= 4 and memcmp(action, b"send", 4) == 0 and word_size(action, rest) == 4
                if is_send or (newline - action >= 7 and memcmp(action, b"publish", 7) == 0 and word_size(action, rest) == 7):
                    if newline - rest >= 2 and rest[0] == 45 and rest[1] == 45:
                        rest = past_word(rest, newline)         # --once and its scope
                    name = rest
                    if is_send:
                        event = name_in(rest, newline) if needs_event else b""
                        name = PyBytes_AS_STRING(event)
                        name_size = PyBytes_GET_SIZE(event)
                    else:
                        rest = past_word(name, newline)
                        name_size = word_size(name, rest)
                    if self._wants is None or self._is_wanted(name[:name_size]):
                        self._put(line, after_id - line, is_send, name, name_size, rest, newline - rest, position, time, ascii)
            position += newline + 1 - line
            line = newline + 1
        return 0

    cdef bint _is_wanted(self, bytes event) except -1:
        known = self._known.get(event)
        if known is None:
            if len(self._known) >= MOST_EVENTS:
                self._known.clear()
            known = self._known[event] = bool(self._wants(event))
        return known

    cdef int _put(
        self, const char* id, size_t id_size, bint is_send, const char* event, size_t event_size, const char* data,
        size_t data_size, uint64_t position, int64_t time, bint ascii,
    ) except -1:
        cdef int wanted = self._wanted
        cdef bint is_raw
        if wanted & POSITION:
            put_number(&self._position, <int64_t>position)
        if wanted & TIME:
            put_number(&self._time, time)
        if wanted & ID:
            put_text(&self._id, id, id_size, ascii)
        if wanted & ACTION:
            put(&self._action, b"send" if is_send else b"publish", 4 if is_send else 7)
        if wanted & EVENT:
            put_text(&self._event, event, event_size, ascii)
        if wanted & DATA:
            put_text(&self._data, data, data_size, ascii)
        if wanted & RAW:
            is_raw = not (ascii or is_utf8(data, data_size))
            put(&self._raw, data, data_size if is_raw else 0)
            self._mark(is_raw)
        self.rows += 1
        return 0

    cdef int _mark(self, bint is_raw) except -1:
        """One more bit of which rows have a raw value, the lowest bit of each byte first."""
        if self.rows % 8 == 0:
            reserve(&self._is_raw, 1)[0] = 0
            self._is_raw.size += 1
        if is_raw:
            (<uint8_t*>self._is_raw.data)[self.rows // 8] |= <uint8_t>(1 << (self.rows % 8))
        return 0

    def take(self):
        """The buffers of each column, in the order of the names; then it is empty again.

        Numbers: (values,); strings: (offsets, bytes); raw: (validity, offsets, bytes).
        """
        cdef list columns = []
        for name in self._names:
            if name == "position":
                columns.append((taken(&self._position),))
            elif name == "time":
                columns.append((taken(&self._time),))
            elif name == "id":
                columns.append(taken_text(&self._id))
            elif name == "action":
                columns.append(taken_text(&self._action))
            elif name == "event":
                columns.append(taken_text(&self._event))
            elif name == "data":
                columns.append(taken_text(&self._data))
            else:
                columns.append((taken(&self._is_raw), *taken_text(&self._raw)))
        self.rows = 0
        return columns
