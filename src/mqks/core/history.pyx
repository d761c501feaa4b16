"""Parts of the log as answers to `history`: lines in, replies out, in one go. It touches nothing but what it is given."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcmp, memcpy

from mqks.core cimport buffer
from mqks.core.memory cimport Memory
from mqks.core.tail cimport HEADER
from mqks.core.text cimport after_flag, is_publish


def answers(
    bytes data, uint64_t position, bytes prefix, uint64_t start, uint64_t stop, bytes until, size_t limit, size_t room,
    wants, name_of,
):
    """Replies for the messages in this part of the log, which stands at `position` and is whole lines.

    Each is `prefix`, its position, its id, its event and its data. `name_of` tells the event of a SEVX message. What is below `start`
    is left out, and each event that is not wanted (None: all are). It ends before `stop`, before a batch whose dtid is
    `until` or later (empty: none), or after `limit` messages; it pauses when the replies have `room` bytes. Answers the
    replies, how many there are, the position after the last line that was looked at, and whether it has come to its end.
    """
    cdef Memory uncounted = Memory(0)
    cdef buffer.Buffer out = buffer.Buffer(NULL, 0, 0, 0)
    cdef char* text = PyBytes_AS_STRING(data)
    cdef char* end = text + PyBytes_GET_SIZE(data)
    cdef char* line = text
    cdef char* newline
    cdef char* after_id
    cdef char* name
    cdef char* rest
    cdef size_t count = 0
    cdef bint ended = False
    cdef bytes event
    try:
        while line < end and out.tail < room:
            if count == limit or position + (line - text) >= stop:
                ended = True
                break
            newline = <char*>memchr(line, 10, end - line)
            if newline == NULL:         # no broker writes this, nor what is looked for below
                line = end
                break
            after_id = <char*>memchr(line, 32, newline - line)
            # Only the broker's lines have `batch` as their second word: a message may have it anywhere behind.
            if newline - line == HEADER - 1 and after_id == line + 24 and memcmp(after_id, b" batch ", 7) == 0:
                if PyBytes_GET_SIZE(until) and memcmp(line, PyBytes_AS_STRING(until), 24) >= 0:
                    ended = True
                    break
            elif position + (line - text) < start or after_id == NULL:
                pass
            elif newline - after_id > 9 and is_publish(after_id):
                name = after_flag(after_id + 9, newline)
                rest = <char*>memchr(name, 32, newline - name)
                if rest == NULL:
                    pass
                elif wants is None or wants(name[:rest - name]):
                    add(&out, &uncounted, prefix, position + (line - text), line, after_id - line,
                        name, rest - name, rest, newline + 1 - rest)
                    count += 1
            elif newline - after_id > 6 and memcmp(after_id, b" send ", 6) == 0:
                rest = after_flag(after_id + 6, newline) - 1
                event = name_of(rest[1:newline - rest])
                if wants is None or wants(event):
                    add(&out, &uncounted, prefix, position + (line - text), line, after_id - line,
                        PyBytes_AS_STRING(event), PyBytes_GET_SIZE(event), rest, newline + 1 - rest)
                    count += 1
            line = newline + 1
        return (out.data[:out.tail] if out.tail else b""), count, position + (line - text), ended
    finally:
        buffer.release(&out, &uncounted)


cdef int add(
    buffer.Buffer* out, Memory* memory, bytes prefix, uint64_t position, char* id, size_t id_size, char* event,
    size_t event_size, char* rest, size_t rest_size,
) except -1:
    """One reply; `rest` is the space after the event, the data and the newline."""
    cdef char* to = buffer.reserve(out, memory, PyBytes_GET_SIZE(prefix) + id_size + event_size + rest_size + 32)
    cdef char* start = to
    memcpy(to, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
    to += PyBytes_GET_SIZE(prefix)
    to += snprintf(to, 22, b"%llu ", <unsigned long long>position)
    memcpy(to, id, id_size)
    to += id_size
    memcpy(to, b" event=", 7)
    to += 7
    memcpy(to, event, event_size)
    to += event_size
    memcpy(to, rest, rest_size)
    out.tail += to + rest_size - start
    return 0
