// Convolution and its gradients.
#pragma once

#include "plan_cache.h"

namespace msaccel {

enum class Direction { forward, input_gradient, weight_gradient };

// x (n, c, h, w), weight (o, c / groups, kh, kw), y (n, o, oh, ow) and, if `bias`, a bias (o).
struct Problem {
    Dims x, weight, y;
    int64_t stride, padding, dilation, groups;
    bool bias;
    bool half;  // whether all tensors are float16, else float32
    bool blocked_x = false, blocked_y = false;

    // Throws if the shapes do not match.
    void validate() const;
    double operations() const;
};

// Tensors in the order forward: x, weight, [bias], y; input_gradient: dy, weight, dx;
// weight_gradient: x, dy, dweight, [dbias].
void convolve(Direction direction, const Problem& problem, const std::vector<void*>& tensors);

}  // namespace msaccel
