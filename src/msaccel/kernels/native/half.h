// Conversion between 16-bit types and float32, without instructions that only some processors have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msaccel {

// What a tensor needs before float32 loops or primitives can read it, and after they have written it.
enum class Conversion {
    none,
    float16,
    bfloat16,
    rounded,  // of float32 to values of bfloat16; only for inputs
};

// On up to `threads` threads; exact but for `rounded`.
void widen(Conversion conversion, const void* from, float* to, size_t count, int threads);

// Rounds to nearest, ties to even, as NumPy does; values too large for the type become infinite.
void narrow(Conversion conversion, const float* from, void* to, size_t count, int threads);

// Of one element; bits of a float32 to those of a bfloat16.
inline uint16_t to_bfloat16(uint32_t whole) {
    uint32_t rounded = (whole + 0x7fffu + (whole >> 16 & 1u)) >> 16;
    uint32_t quiet = whole >> 16 | 0x40u;  // a NaN, which rounding could make infinite or −0
    return static_cast<uint16_t>((whole & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

}  // namespace msaccel
