#include "crc32.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace keel {

namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// Slicing by 8: eight bytes are looked up at once, each in the table for its distance from the end.
constexpr Tables made_tables() {
    Tables tables{};
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        tables[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (size_t k = 1; k < 8; k++)
            tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 0xFF];
    return tables;
}

constexpr Tables TABLES = made_tables();

uint32_t by_tables(uint32_t crc, const unsigned char *at, size_t count) {
    for (; count >= 8; at += 8, count -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        word ^= crc;
        crc = 0;
        for (size_t k = 0; k < 8; k++) crc ^= TABLES[7 - k][word >> 8 * k & 0xFF];
    }
    for (; count > 0; at++, count--) crc = crc >> 8 ^ TABLES[0][(crc ^ *at) & 0xFF];
    return crc;
}

#if defined(__x86_64__)

// Folds 64 bytes at a time by carry-less products, as Intel describes it (Gopal and others, Fast CRC computation for
// generic polynomials using PCLMULQDQ instruction, 2009). The constants are those of the paper for this polynomial.
// `count` is a multiple of 16, and at least 64.
__attribute__((target("pclmul,sse4.1"))) uint32_t by_products(uint32_t crc, const unsigned char *at, size_t count) {
    const __m128i k1k2 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i k3k4 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i k5 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    auto load = [](const unsigned char *from) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(from)); };
    __m128i x[4], y;
    for (int k = 0; k < 4; k++) x[k] = load(at + 16 * k);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(static_cast<int>(crc)));
    for (at += 64, count -= 64; count >= 64; at += 64, count -= 64)
        for (int k = 0; k < 4; k++) {
            y = _mm_clmulepi64_si128(x[k], k1k2, 0x00);
            x[k] = _mm_clmulepi64_si128(x[k], k1k2, 0x11);
            x[k] = _mm_xor_si128(_mm_xor_si128(x[k], y), load(at + 16 * k));
        }
    __m128i sum = x[0];
    auto fold = [&](__m128i next) __attribute__((target("pclmul,sse4.1"))) {
        y = _mm_clmulepi64_si128(sum, k3k4, 0x00);
        sum = _mm_clmulepi64_si128(sum, k3k4, 0x11);
        sum = _mm_xor_si128(_mm_xor_si128(sum, y), next);
    };
    for (int k = 1; k < 4; k++) fold(x[k]);
    for (; count >= 16; at += 16, count -= 16) fold(load(at));
    const __m128i low = _mm_setr_epi32(~0, 0, ~0, 0);
    y = _mm_clmulepi64_si128(sum, k3k4, 0x10);  // 128 bits to 64
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), y);
    y = _mm_srli_si128(sum, 4);
    sum = _mm_clmulepi64_si128(_mm_and_si128(sum, low), k5, 0x00);
    sum = _mm_xor_si128(sum, y);
    y = _mm_clmulepi64_si128(_mm_and_si128(sum, low), polynomial, 0x10);  // 64 bits to 32, by Barrett's reduction
    y = _mm_clmulepi64_si128(_mm_and_si128(y, low), polynomial, 0x00);
    return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(sum, y), 1));
}

#endif

}  // namespace

uint32_t crc32(uint32_t crc, const void *bytes, size_t count) {
    const unsigned char *at = static_cast<const unsigned char *>(bytes);
    crc = ~crc;
#if defined(__x86_64__)
    if (count >= 128 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        size_t folded = count & ~size_t{15};
        crc = by_products(crc, at, folded);
        at += folded;
        count -= folded;
    }
#endif
    return ~by_tables(crc, at, count);
}

}  // namespace keel
