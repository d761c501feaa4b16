"""One keyed hash for every table of the core: a client that chooses names cannot choose collisions."""

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint64_t mqks_mix(uint64_t a, uint64_t b) {
        __uint128_t product = (__uint128_t)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    static inline uint64_t mqks_hash(const char *text, size_t size, uint64_t seed) {
        uint64_t state = seed ^ size, word;
        while (size >= 8) {
            memcpy(&word, text, 8);
            state = mqks_mix(state ^ word, 0x9E3779B97F4A7C15ull);
            text += 8;
            size -= 8;
        }
        if (size) {
            word = 0;
            memcpy(&word, text, size);
            state = mqks_mix(state ^ word, 0xD6E8FEB86659FD93ull);
        }
        return mqks_mix(state ^ seed, 0xA0761D6478BD642Full);
    }
    """
    uint64_t hash_of "mqks_hash" (const char* text, size_t size, uint64_t seed) noexcept nogil
