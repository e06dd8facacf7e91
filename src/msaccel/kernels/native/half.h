// Conversion between float16 and float32, without instructions that only some processors have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msaccel {

// On up to `threads` threads; exact.
void widen(const uint16_t* from, float* to, size_t count, int threads);

// Rounds to nearest, ties to even, as NumPy does; values too large for float16 become infinite.
void narrow(const float* from, uint16_t* to, size_t count, int threads);

}  // namespace msaccel
