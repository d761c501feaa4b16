"""A keyed digest of 128 bits (SipHash-2-4), for what must never be taken for something else.

A message whose digest meets that of another would be lost: so it is wider than the hash of tables, and its key is secret.
"""

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    typedef struct { uint64_t high, low; } mqks_digest;
    static inline uint64_t mqks_turn(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }
    static inline void mqks_rounds(uint64_t v[4], int count) {
        while (count--) {
            v[0] += v[1]; v[1] = mqks_turn(v[1], 13) ^ v[0]; v[0] = mqks_turn(v[0], 32);
            v[2] += v[3]; v[3] = mqks_turn(v[3], 16) ^ v[2];
            v[0] += v[3]; v[3] = mqks_turn(v[3], 21) ^ v[0];
            v[2] += v[1]; v[1] = mqks_turn(v[1], 17) ^ v[2]; v[2] = mqks_turn(v[2], 32);
        }
    }
    static inline void mqks_absorb(uint64_t v[4], uint64_t word) {
        v[3] ^= word;
        mqks_rounds(v, 2);
        v[0] ^= word;
    }
    static inline mqks_digest mqks_digest_of(const char *text, size_t size, mqks_digest key) {
        uint64_t v[4] = {key.high ^ 0x736f6d6570736575ull, key.low ^ 0x646f72616e646f6dull ^ 0xee,
                         key.high ^ 0x6c7967656e657261ull, key.low ^ 0x7465646279746573ull};
        uint64_t word = 0, last = (uint64_t)size << 56;
        mqks_digest made;
        for (; size >= 8; text += 8, size -= 8) {
            memcpy(&word, text, 8);
            mqks_absorb(v, word);
        }
        while (size--)
            last |= (uint64_t)(unsigned char)text[size] << 8 * size;
        mqks_absorb(v, last);
        v[2] ^= 0xee;
        mqks_rounds(v, 4);
        made.high = v[0] ^ v[1] ^ v[2] ^ v[3];
        v[1] ^= 0xdd;
        mqks_rounds(v, 4);
        made.low = v[0] ^ v[1] ^ v[2] ^ v[3];
        return made;
    }
    """
    ctypedef struct Digest "mqks_digest":
        uint64_t high
        uint64_t low
    Digest digest_of "mqks_digest_of" (const char* text, size_t size, Digest key) noexcept nogil
