"""CRC-32 as zlib has it, for every byte of the journal: so it must cost less than the copy that brought the byte here.

Where the processor multiplies polynomials (PCLMULQDQ) 64 bytes are folded at a time onto the next 64; that keeps the remainder,
so that at last 16 bytes stand for all that was folded. These, and everything elsewhere, go through tables, 8 bytes at a time.
All of it is static: each compiled file that cimports this has its own, made ready when it is loaded.
"""

from libc.stdint cimport uint32_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>
    static uint32_t mqks_crc_tables[8][256];    /* [n][byte]: what the byte leaves when n bytes have followed it */

    static inline uint32_t mqks_crc_word(const unsigned char *bytes) {
        return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    }
    static inline uint32_t mqks_crc_by_tables(uint32_t state, const unsigned char *bytes, size_t size) {
        uint32_t (*tables)[256] = mqks_crc_tables;
        uint32_t a, b;
        for (; size >= 8; bytes += 8, size -= 8) {
            a = mqks_crc_word(bytes) ^ state;
            b = mqks_crc_word(bytes + 4);
            state = tables[7][a & 255] ^ tables[6][a >> 8 & 255] ^ tables[5][a >> 16 & 255] ^ tables[4][a >> 24]
                  ^ tables[3][b & 255] ^ tables[2][b >> 8 & 255] ^ tables[1][b >> 16 & 255] ^ tables[0][b >> 24];
        }
        for (; size; bytes++, size--)
            state = state >> 8 ^ tables[0][(state ^ *bytes) & 255];
        return state;
    }

    #if defined(__x86_64__)
    #include <immintrin.h>
    #define MQKS_CRC_FOLD_FROM 64
    static int mqks_crc_can_fold;

    /* x to the power of (distance + 32) and of (distance - 32), modulo the polynomial, in its mirrored order of bits: what the
       lower and the upper half of 128 bits are multiplied by to be moved so many bits ahead. */
    #define MQKS_CRC_AHEAD_512 _mm_set_epi64x(0x1C6E41596, 0x154442BD4)
    #define MQKS_CRC_AHEAD_128 _mm_set_epi64x(0x0CCAA009E, 0x1751997D0)

    __attribute__((target("pclmul"))) static inline __m128i mqks_crc_ahead(__m128i bits, __m128i powers, __m128i onto) {
        __m128i lower = _mm_clmulepi64_si128(bits, powers, 0x00), upper = _mm_clmulepi64_si128(bits, powers, 0x11);
        return _mm_xor_si128(_mm_xor_si128(lower, upper), onto);
    }
    __attribute__((target("pclmul"), unused))
    static uint32_t mqks_crc_by_folding(uint32_t state, const unsigned char *bytes, size_t size) {
        const __m128i far = MQKS_CRC_AHEAD_512, near = MQKS_CRC_AHEAD_128;
        const __m128i *next = (const __m128i *)bytes;
        unsigned char rest[16];
        __m128i a = _mm_xor_si128(_mm_loadu_si128(next), _mm_cvtsi32_si128((int)state));
        __m128i b = _mm_loadu_si128(next + 1), c = _mm_loadu_si128(next + 2), d = _mm_loadu_si128(next + 3);
        for (next += 4, size -= 64; size >= 64; next += 4, size -= 64) {
            a = mqks_crc_ahead(a, far, _mm_loadu_si128(next));
            b = mqks_crc_ahead(b, far, _mm_loadu_si128(next + 1));
            c = mqks_crc_ahead(c, far, _mm_loadu_si128(next + 2));
            d = mqks_crc_ahead(d, far, _mm_loadu_si128(next + 3));
        }
        d = mqks_crc_ahead(mqks_crc_ahead(mqks_crc_ahead(a, near, b), near, c), near, d);
        for (; size >= 16; next++, size -= 16)
            d = mqks_crc_ahead(d, near, _mm_loadu_si128(next));
        _mm_storeu_si128((__m128i *)rest, d);
        return mqks_crc_by_tables(mqks_crc_by_tables(0, rest, 16), (const unsigned char *)next, size);
    }
    #endif

    __attribute__((constructor)) static void mqks_crc_prepare(void) {
        int byte, bit, n;
        for (byte = 0; byte < 256; byte++) {
            uint32_t state = (uint32_t)byte;
            for (bit = 0; bit < 8; bit++)
                state = state >> 1 ^ (state & 1 ? 0xEDB88320 : 0);
            mqks_crc_tables[0][byte] = state;
        }
        for (n = 1; n < 8; n++)
            for (byte = 0; byte < 256; byte++) {
                uint32_t state = mqks_crc_tables[n - 1][byte];
                mqks_crc_tables[n][byte] = state >> 8 ^ mqks_crc_tables[0][state & 255];
            }
    #if defined(__x86_64__)
        __builtin_cpu_init();
        mqks_crc_can_fold = __builtin_cpu_supports("pclmul") != 0;
    #endif
    }

    static inline uint32_t mqks_crc32_by_tables(uint32_t before, const char *data, size_t size) {
        return ~mqks_crc_by_tables(~before, (const unsigned char *)data, size);
    }
    static inline uint32_t mqks_crc32(uint32_t before, const char *data, size_t size) {
    #if defined(__x86_64__)
        if (size >= MQKS_CRC_FOLD_FROM && mqks_crc_can_fold)
            return ~mqks_crc_by_folding(~before, (const unsigned char *)data, size);
    #endif
        return mqks_crc32_by_tables(before, data, size);
    }
    """
    # The CRC of what came before, then of these bytes: as zlib.crc32(data, before).
    uint32_t crc32 "mqks_crc32" (uint32_t before, const char* data, size_t size) noexcept nogil
    # The same on a processor that cannot fold; for tests.
    uint32_t crc32_by_tables "mqks_crc32_by_tables" (uint32_t before, const char* data, size_t size) noexcept nogil
