"""One keyed hash for every table of the core: a client that chooses names cannot choose collisions.

All 64 bits are good: unsettled messages are known by their hash alone.
"""

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint64_t mqks_mix(uint64_t a, uint64_t b) {
        __uint128_t product = (__uint128_t)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    static inline uint64_t mqks_word(const char *text, size_t size) {
        /* Up to 8 bytes as one number, by reads of fixed size: one of variable size would stall the processor. */
        uint64_t word;
        uint32_t first, last;
        const unsigned char *bytes = (const unsigned char *)text;
        if (size == 8) {
            memcpy(&word, text, 8);
            return word;
        }
        if (size >= 4) {
            memcpy(&first, text, 4);
            memcpy(&last, text + size - 4, 4);
            return (uint64_t)first << 32 | last;
        }
        return size ? (uint64_t)bytes[0] << 16 | (uint64_t)bytes[size / 2] << 8 | bytes[size - 1] : 0;
    }
    static inline uint64_t mqks_hash(const char *text, size_t size, uint64_t seed) {
        /* The size goes into the last factor: texts of two sizes may have the same words. */
        uint64_t state = seed, factor = 0xD6E8FEB86659FD93ull ^ (uint64_t)size << 20;
        for (; size > 8; text += 8, size -= 8)
            state = mqks_mix(state ^ mqks_word(text, 8), 0x9E3779B97F4A7C15ull);
        return mqks_mix(state ^ mqks_word(text, size), factor) ^ state;
    }
    static inline int mqks_same(const char *a, const char *b, size_t size) {
        /* Two short texts of one size are equal where their words are. */
        return size <= 8 ? mqks_word(a, size) == mqks_word(b, size) : memcmp(a, b, size) == 0;
    }
    """
    bint same_bytes "mqks_same" (const char* a, const char* b, size_t size) noexcept nogil
    uint64_t hash_of "mqks_hash" (const char* text, size_t size, uint64_t seed) noexcept nogil
