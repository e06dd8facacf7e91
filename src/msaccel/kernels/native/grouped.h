// The weight's gradient of a convolution whose groups have few channels, such as a depthwise one, as sums of our own.
#pragma once

#include "convolution.h"

namespace msaccel {

// Whether `grouped_weight_gradient` is faster for the groups of a valid problem (`sums_groups` in convolution.cc) than
// oneDNN, which computes some of them by its reference code. Depends only on the shapes and the number of threads, so
// results are reproducible.
bool fits_grouped(const Problem& problem);

// Takes the same tensors as `convolve`.
void grouped_weight_gradient(const Problem& problem, const std::vector<void*>& tensors);

}  // namespace msaccel
