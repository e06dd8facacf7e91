// Convolution and its gradients.
#pragma once

#include <array>

#include "plan_cache.h"

namespace msaccel {

enum class Direction { forward, input_gradient, weight_gradient };

using Sides = std::array<int64_t, 2>;  // along the height and the width

// x (n, c, h, w), weight (o, c / groups, kh, kw), y (n, o, oh, ow) and, if `bias`, a bias (o).
struct Problem {
    Dims x, weight, y;
    Sides stride, dilation, before, after;  // before and after: zeros added at the top and left, the bottom and right
    int64_t groups;
    bool bias = false;
    Products products = Products::float32;
    Type of_x = Type::float32, of_weight = Type::float32, of_y = Type::float32;
    Order order_x = Order::channels_first, order_y = Order::channels_first;

    // Sets the zeros so that y has ⌈size of x / stride⌉ rows and columns; an odd one goes to the bottom and the right.
    void pad_to_same();
    // Throws if the shapes do not match.
    void validate() const;
    double operations() const;
};

// Rows (side 0) or columns (side 1) of x that the kernel covers.
int64_t reach(const Problem& problem, int side);

// Tensors in the order forward: x, weight, [bias], y; input_gradient: dy, weight, dx;
// weight_gradient: x, dy, dweight, [dbias].
void convolve(Direction direction, const Problem& problem, const std::vector<void*>& tensors);

// The same by oneDNN, whatever else would be faster.
void convolve_by_onednn(Direction direction, const Problem& problem, const std::vector<void*>& tensors);

}  // namespace msaccel
