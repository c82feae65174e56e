#include "cpu.h"

#include <cstdint>
#include <fstream>
#include <sstream>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace keel {

namespace {

#if defined(__x86_64__)

enum Register { EAX, EBX, ECX, EDX };

struct Bit {
    const char *name;
    uint32_t leaf, subleaf;
    Register in;
    int bit;
    uint64_t state;  // what the system has to save of it (XCR0), or 0
};

constexpr uint64_t YMM = 0x6, ZMM = 0xE6, TILES = 0x60000;

constexpr Bit BITS[] = {
    {"fpu", 1, 0, EDX, 0, 0},
    {"cx8", 1, 0, EDX, 8, 0},
    {"cmov", 1, 0, EDX, 15, 0},
    {"mmx", 1, 0, EDX, 23, 0},
    {"fxsr", 1, 0, EDX, 24, 0},
    {"sse", 1, 0, EDX, 25, 0},
    {"sse2", 1, 0, EDX, 26, 0},
    {"pni", 1, 0, ECX, 0, 0},
    {"pclmulqdq", 1, 0, ECX, 1, 0},
    {"ssse3", 1, 0, ECX, 9, 0},
    {"fma", 1, 0, ECX, 12, YMM},
    {"cx16", 1, 0, ECX, 13, 0},
    {"sse4_1", 1, 0, ECX, 19, 0},
    {"sse4_2", 1, 0, ECX, 20, 0},
    {"movbe", 1, 0, ECX, 22, 0},
    {"popcnt", 1, 0, ECX, 23, 0},
    {"aes", 1, 0, ECX, 25, 0},
    {"xsave", 1, 0, ECX, 26, 0},
    {"avx", 1, 0, ECX, 28, YMM},
    {"f16c", 1, 0, ECX, 29, YMM},
    {"rdrand", 1, 0, ECX, 30, 0},
    {"bmi1", 7, 0, EBX, 3, 0},
    {"avx2", 7, 0, EBX, 5, YMM},
    {"bmi2", 7, 0, EBX, 8, 0},
    {"avx512f", 7, 0, EBX, 16, ZMM},
    {"avx512dq", 7, 0, EBX, 17, ZMM},
    {"adx", 7, 0, EBX, 19, 0},
    {"avx512ifma", 7, 0, EBX, 21, ZMM},
    {"avx512cd", 7, 0, EBX, 28, ZMM},
    {"sha_ni", 7, 0, EBX, 29, 0},
    {"avx512bw", 7, 0, EBX, 30, ZMM},
    {"avx512vl", 7, 0, EBX, 31, ZMM},
    {"avx512vbmi", 7, 0, ECX, 1, ZMM},
    {"avx512_vbmi2", 7, 0, ECX, 6, ZMM},
    {"gfni", 7, 0, ECX, 8, 0},
    {"vaes", 7, 0, ECX, 9, YMM},
    {"vpclmulqdq", 7, 0, ECX, 10, YMM},
    {"avx512_vnni", 7, 0, ECX, 11, ZMM},
    {"avx512_bitalg", 7, 0, ECX, 12, ZMM},
    {"avx512_vpopcntdq", 7, 0, ECX, 14, ZMM},
    {"avx512_vp2intersect", 7, 0, EDX, 8, ZMM},
    {"amx_bf16", 7, 0, EDX, 22, TILES},
    {"avx512_fp16", 7, 0, EDX, 23, ZMM},
    {"amx_tile", 7, 0, EDX, 24, TILES},
    {"amx_int8", 7, 0, EDX, 25, TILES},
    {"avx_vnni", 7, 1, EAX, 4, YMM},
    {"avx512_bf16", 7, 1, EAX, 5, ZMM},
    {"lahf_lm", 0x80000001, 0, ECX, 0, 0},
    {"abm", 0x80000001, 0, ECX, 5, 0},
    {"sse4a", 0x80000001, 0, ECX, 6, 0},
};

uint64_t saved_state() {
    uint32_t low, high, a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 27)) return 0;  // without OSXSAVE, nothing but SSE
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return static_cast<uint64_t>(high) << 32 | low;
}

// 1 or 0, or -1 for a feature that is not in the table.
int by_cpuid(const std::string &feature) {
    for (const Bit &bit : BITS) {
        if (feature != bit.name) continue;
        uint32_t registers[4] = {};
        if (!__get_cpuid_count(bit.leaf, bit.subleaf, &registers[EAX], &registers[EBX], &registers[ECX],
                               &registers[EDX]))
            return 0;
        return (registers[bit.in] >> bit.bit & 1) && (saved_state() & bit.state) == bit.state;
    }
    return -1;
}

#else

int by_cpuid(const std::string &) { return -1; }

#endif

}  // namespace

bool cpu_has(const std::string &feature) {
    if (int known = by_cpuid(feature); known >= 0) return known != 0;
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
        std::istringstream listed(line.substr(line.find(':') + 1));
        for (std::string each; listed >> each;)
            if (each == feature) return true;
        return false;
    }
    return false;
}

}  // namespace keel
