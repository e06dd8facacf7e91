// Convolution with a 3 × 3 kernel in fewer multiplications: F(2 × 2, 3 × 3) of Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks" (2016), https://arxiv.org/abs/1509.09308. 16 products make four pixels that take 36
// otherwise. In bfloat16 the transforms of images and kernels are rounded, which makes the error of the sums up to twice
// that of rounded images and kernels. A value that is not finite spreads over its tile of 2 × 2 pixels, also to pixels
// that do not depend on it.
#pragma once

#include "convolution.h"

namespace msaccel {

// Whether `winograd` supports this direction and is faster than oneDNN. Depends only on the shapes, the threads and the
// processor, so results are reproducible.
bool fits_winograd(Direction direction, const Problem& problem, int threads);

// Takes the same tensors as `convolve`; plain images are copied into blocks and back.
void winograd(Direction direction, const Problem& problem, const std::vector<void*>& tensors, int threads);

}  // namespace msaccel
