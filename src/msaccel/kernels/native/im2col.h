// Convolution of images with a single channel as a product of the weight and a matrix of patches.
#pragma once

#include "convolution.h"

namespace msaccel {

// Whether `im2col` supports this problem and is faster than oneDNN, whose AVX2 code pads the channel to eight in the
// weight's gradient. Depends only on the shapes and the processor, so results are reproducible.
bool fits_im2col(Direction direction, const Problem& problem);

// Takes the same tensors as `convolve`.
void im2col(Direction direction, const Problem& problem, const std::vector<void*>& tensors, int threads);

}  // namespace msaccel
