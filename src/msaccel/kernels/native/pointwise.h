// The weight's gradient of a 1 × 1 convolution as a product of two matrices of pixels, for AMX.
#pragma once

#include "convolution.h"

namespace msaccel {

// Whether `pointwise_weight_gradient` supports this problem and is faster than oneDNN's convolution. Depends only on
// the shapes and the processor, so results are reproducible.
bool fits_pointwise(Direction direction, const Problem& problem);

// x, dy → dweight
void pointwise_weight_gradient(const Problem& problem, const std::vector<void*>& tensors, int threads);

}  // namespace msaccel
