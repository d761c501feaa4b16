"""Looking at and copying the few bytes that every message has, without a call or a branch too many."""

from libc.string cimport memcmp

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


cdef inline bint ends_like_retry(const char* p, const char* end) noexcept nogil:
    """Does this event end in ",retry={digits}"? Then a delivery of it could be taken for a retry of another."""
    cdef const char* at = end
    while at > p and 48 <= (at - 1)[0] <= 57:
        at -= 1
    return at != end and at - p >= 7 and memcmp(at - 7, b",retry=", 7) == 0
