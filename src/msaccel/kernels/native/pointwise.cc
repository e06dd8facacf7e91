#include "pointwise.h"

#include "matrix_product.h"
#include "scratch.h"
#include "thread_pool.h"

namespace msaccel {
namespace {

constexpr int64_t KIND = 6;  // in keys of plans, behind that of images side by side

using Half = uint16_t;  // the bits of a bfloat16

int64_t elements(const Dims& dims) { return dims[0] * dims[1] * dims[2] * dims[3]; }

// A row of channels for each pixel, in bfloat16.
void copy_pixels(const Dims& dims, bool in_blocks, Type type, void* from, Half* to, int threads) {
    int seen = Multiplication{Products::bfloat16}.tensor(type);
    Key key = {KIND, in_blocks, seen, threads};
    key.insert(key.end(), dims.begin(), dims.end());
    auto layout = [&] { return in_blocks ? blocked(dims, seen) : plain(dims, seen); };
    auto plan = plan_cache().get(key, [&] { return make_copy(dims, layout(), channels_last(dims, dnnl_bf16), threads); });
    plan->run({from, to});
}

}  // namespace

bool fits_pointwise(Direction direction, const Problem& p) {
    return direction == Direction::weight_gradient && p.products == Products::bfloat16 && multiplies_tiles() &&
           !p.channels_last && p.of_x != Type::float16 && !p.bias && p.groups == 1 && p.weight[2] == 1 && p.weight[3] == 1 &&
           p.stride == Sides{1, 1} && p.y[2] == p.x[2] && p.y[3] == p.x[3];
}

void pointwise_weight_gradient(const Problem& p, const std::vector<void*>& tensors, int threads) {
    static thread_local Scratch scratch;
    p.validate();
    auto* x = reinterpret_cast<Half*>(scratch.at_least((elements(p.x) + elements(p.y)) * sizeof(Half)));
    Half* dy = x + elements(p.x);
    copy_pixels(p.x, p.blocked_x, p.of_x, tensors[0], x, threads);
    copy_pixels(p.y, p.blocked_y, p.of_y, tensors[1], dy, threads);
    int64_t pixels = p.x[0] * p.x[2] * p.x[3];
    MatrixProduct product{p.products, true, false, 1, p.y[1], p.x[1], pixels, Type::bfloat16};
    product.compute(dy, x, static_cast<float*>(tensors[2]));
}

}  // namespace msaccel
