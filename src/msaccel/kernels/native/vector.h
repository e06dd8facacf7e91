// Vectors of 16 numbers, computed with the widest instructions that the processor has.
//
// A file of loops, `*_loops.h`, is compiled for several generations of processors, and dispatch.h picks one at run
// time. The results are bit-equal on all of them: sums have 16 lanes everywhere, and no multiplication is fused with an
// addition (build.py). Loops that only pay with AVX-512 (dense.cc) are used only there; elsewhere oneDNN
// computes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#if defined(__x86_64__) && !defined(__clang__)
#include <immintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))
#define INLINED __attribute__((always_inline))  // of a lambda

namespace msaccel {

constexpr int LANES = 16;
constexpr int64_t LONGEST = 4096;  // elements that are summed in float32; these sums are added in float64

typedef int32_t Integers __attribute__((vector_size(4 * LANES)));
typedef uint8_t Bytes __attribute__((vector_size(LANES), aligned(1), may_alias));
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

// An element of a tensor in bfloat16: the upper half of a float32.
struct Bfloat16 {
    uint16_t bits;
};

inline int generation() {
#if defined(__x86_64__) && !defined(__clang__)
    static const int found = __builtin_cpu_supports("avx512f") ? 2 : __builtin_cpu_supports("avx2") ? 1 : 0;
    return found;
#else
    return 0;
#endif
}

// Of the loops that run. MSACCEL_LOOPS holds them to a lower generation, for tests that compare their bits.
inline int generation_of_loops() {
    static const int found = [] {
        const char* most = std::getenv("MSACCEL_LOOPS");
        return most ? std::min(generation(), std::atoi(most)) : generation();
    }();
    return found;
}

// Channels that are contiguous in the blocked layout: as many as a vector holds, since oneDNN computes other blocks by
// its reference code. Of the processor alone, whatever compiler built the loops, as in processor.py.
inline int block() {
#if defined(__x86_64__)
    static const int found = __builtin_cpu_supports("avx512f") ? 16 : 8;
    return found;
#else
    return 8;
#endif
}

}  // namespace msaccel
