// 1 × 1 convolutions for AMX: with a stride, only of the pixels that the kernel sees; and the weight's gradient as a
// product of matrices.
#pragma once

#include "convolution.h"

namespace msaccel {

// Whether `convolve_pointwise` supports this problem and is faster than oneDNN's convolution. Depends only on the
// shapes and the processor, so results are reproducible.
bool fits_pointwise(Direction direction, const Problem& problem);

// Takes the same tensors as `convolve`.
void convolve_pointwise(Direction direction, const Problem& problem, const std::vector<void*>& tensors, int threads);

}  // namespace msaccel
