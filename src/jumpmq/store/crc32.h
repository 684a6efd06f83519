/* The CRC-32 of zlib, at the speed of memory where the processor has an instruction for it.

   On x86-64: 64 octets at a time by carry-less multiplication (Gopal et al., "Fast CRC Computation for Generic
   Polynomials Using PCLMULQDQ Instruction", Intel, 2009; its constants for this polynomial, bits reflected). On other
   little-endian machines: eight octets at a time by tables (Kounavis and Berry, 2008). */

#ifndef JUMPMQ_CRC32_H
#define JUMPMQ_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t crc32_tables[8][256];

static uint32_t crc32_by_tables(const uint8_t *at, size_t length, uint32_t crc)
{
    uint64_t word;
    for (; length >= 8; at += 8, length -= 8) {
        memcpy(&word, at, 8);
        word ^= crc;
        crc = crc32_tables[7][word & 0xFF] ^ crc32_tables[6][(word >> 8) & 0xFF]
            ^ crc32_tables[5][(word >> 16) & 0xFF] ^ crc32_tables[4][(word >> 24) & 0xFF]
            ^ crc32_tables[3][(word >> 32) & 0xFF] ^ crc32_tables[2][(word >> 40) & 0xFF]
            ^ crc32_tables[1][(word >> 48) & 0xFF] ^ crc32_tables[0][word >> 56];
    }
    for (; length; at++, length--)
        crc = crc32_tables[0][(crc ^ *at) & 0xFF] ^ (crc >> 8);
    return crc;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <immintrin.h>

#define FOLD(into, by, with) _mm_xor_si128( \
    _mm_xor_si128(_mm_clmulepi64_si128(into, by, 0x00), _mm_clmulepi64_si128(into, by, 0x11)), with)

/* Of at least 64 octets, a multiple of 16. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t crc32_by_folding(const uint8_t *at, size_t length, uint32_t crc)
{
    const __m128i *next = (const __m128i *)at;
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_8 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i a = _mm_xor_si128(_mm_loadu_si128(next), _mm_cvtsi32_si128((int)crc));
    __m128i b = _mm_loadu_si128(next + 1), c = _mm_loadu_si128(next + 2), d = _mm_loadu_si128(next + 3);
    __m128i rest;
    for (next += 4, length -= 64; length >= 64; next += 4, length -= 64) {
        a = FOLD(a, by_64, _mm_loadu_si128(next));
        b = FOLD(b, by_64, _mm_loadu_si128(next + 1));
        c = FOLD(c, by_64, _mm_loadu_si128(next + 2));
        d = FOLD(d, by_64, _mm_loadu_si128(next + 3));
    }
    a = FOLD(a, by_16, b);
    a = FOLD(a, by_16, c);
    a = FOLD(a, by_16, d);
    for (; length >= 16; next++, length -= 16)
        a = FOLD(a, by_16, _mm_loadu_si128(next));
    /* 128 bits to 64, and to 32 (Barrett) */
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_16, 0x10));
    rest = _mm_srli_si128(a, 4);
    a = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low), by_8, 0x00), rest);
    rest = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low), polynomial, 0x10), low);
    a = _mm_xor_si128(_mm_clmulepi64_si128(rest, polynomial, 0x00), a);
    return (uint32_t)_mm_extract_epi32(a, 1);
}

#endif

static int crc32_folds;

/* To be called once, before any other. */
static void crc32_prepare(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320 : 0);
        crc32_tables[0][i] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = crc32_tables[table - 1][i];
            crc32_tables[table][i] = crc32_tables[0][crc & 0xFF] ^ (crc >> 8);
        }
#ifdef FOLD
    crc32_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static uint32_t crc32_of(const uint8_t *at, size_t length, uint32_t crc)
{
    crc = ~crc;
#ifdef FOLD
    if (crc32_folds && length >= 64) {
        size_t folded = length & ~(size_t)15;
        crc = crc32_by_folding(at, folded, crc);
        at += folded;
        length -= folded;
    }
#endif
    return ~crc32_by_tables(at, length, crc);
}

#endif
