// Convolution of a batch of small images as one wide image, for AMX.
#pragma once

#include "convolution.h"

namespace msaccel {

// Whether `convolve_side_by_side` supports this problem and is faster than a convolution of each image: AMX multiplies
// tiles of 16 pixels, or of 32 in the weight's gradient, and oneDNN takes them from a single row of an image. Depends
// only on the shapes and the processor, so results are reproducible.
bool fits_side_by_side(const Problem& problem);

// Takes the same tensors as `convolve`.
void convolve_side_by_side(
    Direction direction, const Problem& problem, const std::vector<void*>& tensors, int threads);

}  // namespace msaccel
