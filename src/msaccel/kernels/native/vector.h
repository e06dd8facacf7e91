// Sixteen numbers at a time, with the widest instructions that the processor at hand has.
//
// A function marked VECTORISED is compiled for several generations of processors, and the first call picks one. Its
// bits are the same on all of them: sums are of sixteen lanes everywhere, and no multiplication is fused with an
// addition (build.py).
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED
#endif
#define INLINE inline __attribute__((always_inline))
#define INLINED __attribute__((always_inline))  // of a lambda

namespace msaccel {

constexpr int LANES = 16;
constexpr int64_t LONGEST = 4096;  // numbers that are summed in float32; their sums are added in float64

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE void load(const float* from, int64_t count, float otherwise, Vector& to) {
    if (count == LANES) {
        to = *reinterpret_cast<const Vector*>(from);
    } else {
        for (int lane = 0; lane < LANES; ++lane) to[lane] = lane < count ? from[lane] : otherwise;
    }
}

INLINE void store(const Vector& from, int64_t count, float* to) {
    if (count == LANES) {
        *reinterpret_cast<Vector*>(to) = from;
    } else {
        for (int lane = 0; lane < count; ++lane) to[lane] = from[lane];
    }
}

// body(i, count of numbers from i on) for all of `begin` to `end`; all but the last are of LANES numbers.
template <typename Body>
INLINE void each_vector(int64_t begin, int64_t end, Body body) {
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES) body(i, int64_t{LANES});
    if (i < end) body(i, end - i);
}

}  // namespace msaccel
