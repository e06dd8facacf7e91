// Convolution with a 3 × 3 kernel in fewer multiplications: F(2 × 2, 3 × 3) of Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks" (2016), https://arxiv.org/abs/1509.09308. 16 products make four pixels that take 36
// otherwise. What is not finite spreads over its tile of 2 × 2 pixels, also to those that do not see it.
#pragma once

#include "convolution.h"

namespace msaccel {

// Whether `winograd` computes this direction, and faster than oneDNN: a function of the shapes and of what the processor
// can do, so the bits do not depend on the moment.
bool fits_winograd(Direction direction, const Problem& problem, int threads);

// As `convolve`.
void winograd(Direction direction, const Problem& problem, const std::vector<void*>& tensors, int threads);

}  // namespace msaccel
