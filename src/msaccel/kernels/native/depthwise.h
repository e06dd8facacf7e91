// The weight's gradient of a depthwise convolution over small images, with a channel in each lane of a vector.
#pragma once

#include "convolution.h"

namespace msaccel {

// Whether `depthwise_weight_gradient` supports the groups of a valid problem (`sums_groups` in convolution.cc) and is
// faster than oneDNN and grouped.cc. Depends only on the shapes.
bool fits_depthwise(const Problem& problem);

// Takes the same tensors as `convolve`.
void depthwise_weight_gradient(const Problem& problem, const std::vector<void*>& tensors);

}  // namespace msaccel
