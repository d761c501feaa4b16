"""Looking at and copying the few bytes that every message has, without a call or a branch too many."""

from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcmp

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* No TAB, NUL, CR or the like in these bytes? Without branches, so that the compiler uses vectors. */
    static inline int mqks_is_clean(const char *text, size_t size) {
        unsigned char found = 0;
        for (size_t i = 0; i < size; i++) {
            unsigned char c = (unsigned char)text[i];
            found |= (c < 14) & (c != 10);
        }
        return !found;
    }
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
    bint is_clean "mqks_is_clean" (const char* text, size_t size) noexcept nogil
    bint is_publish "mqks_is_publish" (const char* text) noexcept nogil
    bint is_ack "mqks_is_ack" (const char* text) noexcept nogil
    void copy_short "mqks_copy_short" (char* to, const char* text, size_t size) noexcept nogil
    uint64_t NO_NUMBER "UINT64_MAX"


cdef inline uint64_t number(const char* text, size_t digits, uint64_t base) noexcept nogil:
    """What so many digits say; NO_NUMBER: not all of them are digits."""
    cdef uint64_t value = 0
    cdef size_t i
    cdef int digit
    for i in range(digits):
        digit = text[i] - 48 if text[i] <= 57 else text[i] - 87
        if digit < 0 or <uint64_t>digit >= base:
            return NO_NUMBER
        value = base * value + digit
    return value


cdef inline bint ends_like_retry(const char* p, const char* end) noexcept nogil:
    """Does this event end in ",retry={digits}"? Then a delivery of it could be taken for a retry of another."""
    cdef const char* at = end
    while at > p and 48 <= (at - 1)[0] <= 57:
        at -= 1
    return at != end and at - p >= 7 and memcmp(at - 7, b",retry=", 7) == 0


cdef struct Flags:
    bint confirm
    char* once                  # as it came, up to what follows it
    size_t once_size            # 0: it did not


cdef inline char* take_flags(char* p, char* end, Flags* flags) noexcept nogil:
    """The flags that stand before an event, each once; answers what follows them."""
    cdef char* space
    while end - p > 7 and p[0] == 45 and p[1] == 45:
        if not flags.confirm and end - p > 10 and memcmp(p, b"--confirm ", 10) == 0:
            flags.confirm = True
            p += 10
        elif not flags.once_size and memcmp(p, b"--once", 6) == 0 and (p[6] == 32 or p[6] == 61):
            space = <char*>memchr(p, 32, end - p)
            if space == NULL:
                return p
            flags.once = p
            flags.once_size = space + 1 - p
            p = space + 1
        else:
            return p
    return p


cdef inline char* scope_of(Flags* flags, size_t* size) noexcept nogil:
    """The scope that --once names; of size 0 without one."""
    size[0] = flags.once_size - 8 if flags.once[6] == 61 else 0
    return flags.once + 7


cdef inline bint is_legal_scope(Flags* flags) noexcept nogil:
    cdef size_t size
    cdef char* scope = scope_of(flags, &size)
    if flags.once[6] != 61:
        return True
    return size > 0 and scope[0] != 123 and not (scope[0] == 45 and (size == 1 or scope[1] == 45))


cdef inline char* after_flag(char* p, char* end) noexcept nogil:
    """In a line of the log, --once may stand before the event or the JSON: what follows it; the end, if nothing does."""
    cdef char* space
    if end - p > 1 and p[0] == 45 and p[1] == 45:
        space = <char*>memchr(p, 32, end - p)
        return end if space == NULL else space + 1
    return p
