#include "pointwise.h"

#include <cstring>

#include "channel_rows.h"
#include "matrix_product.h"
#include "scratch.h"
#include "thread_pool.h"

namespace msaccel {
namespace {

constexpr Sides ONE = {1, 1};

size_t bytes(const Dims& dims, Type type) { return dims[0] * dims[1] * dims[2] * dims[3] * size_of(type); }

// Without gaps, of images (n, c, h, w).
Rows rows(const Dims& dims, Type type) { return {type, dims[1] * dims[2] * dims[3], dims[1] * dims[3], dims[1]}; }

void clear(void* memory, size_t bytes, int threads) {
    thread_pool(threads)->parallel_for(threads, [&](int part, int of) {
        size_t begin = bytes * part / of;
        std::memset(static_cast<char*>(memory) + begin, 0, bytes * (part + 1) / of - begin);
    });
}

}  // namespace

bool fits_pointwise(Direction direction, const Problem& p) {
    return p.products == Products::bfloat16 && multiplies_tiles() && p.of_x != Type::float16 && !p.bias &&
           p.groups == 1 && p.weight[2] == 1 && p.weight[3] == 1 &&
           p.x[2] == p.y[2] * p.stride[0] && p.x[3] == p.y[3] * p.stride[1] &&  // so there are no zeros beside the image
           (p.stride != ONE || direction == Direction::weight_gradient);
}

void convolve_pointwise(Direction direction, const Problem& p, const std::vector<void*>& tensors, int threads) {
    static thread_local Scratch scratch;
    p.validate();
    bool into_x = direction == Direction::input_gradient, into_weight = direction == Direction::weight_gradient;
    Images images{p.x, p.order_x, p.of_x};
    Problem seen = p;  // of the pixels that the kernel sees
    seen.x = {p.x[0], p.x[1], p.y[2], p.y[3]};
    seen.stride = ONE;
    seen.order_x = Order::channels_last;
    seen.of_x = into_x ? p.of_x : Type::bfloat16;
    size_t of_x = aligned(bytes(seen.x, seen.of_x)), of_y = into_weight ? bytes(p.y, Type::bfloat16) : 0;
    char *x = scratch.at_least(of_x + of_y), *y = x + of_x;
    if (into_x) {
        convolve(direction, seen, {tensors[0], tensors[1], x});
        clear(tensors[2], bytes(p.x, p.of_x), threads);
        return copy_rows(true, images, tensors[2], p.stride, rows(seen.x, seen.of_x), x, threads);
    }
    copy_rows(false, images, tensors[0], p.stride, rows(seen.x, seen.of_x), x, threads);
    if (!into_weight) return convolve(direction, seen, {x, tensors[1], tensors[2]});
    copy_rows(false, {p.y, p.order_y, p.of_y}, tensors[1], ONE, rows(p.y, Type::bfloat16), y, threads);
    int64_t pixels = p.y[0] * p.y[2] * p.y[3];
    MatrixProduct product{p.products, true, false, 1, p.y[1], p.x[1], pixels, Type::bfloat16};
    product.compute(y, x, static_cast<float*>(tensors[2]));
}

}  // namespace msaccel
