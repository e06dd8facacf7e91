#include "winograd.h"

#include "plan_cache.h"
#include "scratch.h"
#include "thread_pool.h"
#include "vector.h"

#if defined(__x86_64__) && !defined(__clang__)
#include <immintrin.h>

namespace msaccel {
namespace {

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define WIDTH 8
namespace avx2 {
#include "winograd_loops.h"
#include "winograd_passes.h"
}
#undef WIDTH
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f")
#define WIDTH 16
namespace avx512 {
#include "winograd_loops.h"
#include "winograd_passes.h"
}
#undef WIDTH
#pragma GCC pop_options

constexpr int64_t FEWEST_TILES = 32;  // per thread, below which transforming all kernels does not pay
constexpr int64_t KIND = 4;           // in keys of plans, behind those of products of matrices

// The images of a problem: their place among its tensors, and whether they are computed.
struct Images {
    int at;
    const Dims& dims;
    bool blocked, output;

    int64_t floats() const { return dims[0] * dims[1] * dims[2] * dims[3]; }

    void copy(bool back, void* from, void* to, int threads) const {
        Key key = {KIND, back};
        key.insert(key.end(), dims.begin(), dims.end());
        plan_cache().get(key, [&] { return copy_to_blocks(dims, back, threads); })->run({from, to});
    }
};

void compute(Direction direction, const Problem& p, const std::vector<void*>& tensors, int threads) {
    static thread_local Scratch scratch;
    auto floats = [&](int i) { return static_cast<float*>(tensors[i]); };
    if (direction == Direction::weight_gradient) {
        auto differentiate = generation() == 2 ? avx512::weight_gradient : avx2::weight_gradient;
        return differentiate(p, floats(0), floats(1), floats(2), scratch, threads);
    }
    auto convolve = generation() == 2 ? avx512::convolve_images : avx2::convolve_images;
    convolve(p, direction == Direction::input_gradient, floats(0), floats(1), floats(2), scratch, threads);
}

}  // namespace

bool fits_winograd(Direction direction, const Problem& p, int threads) {
    if (!generation() || !__builtin_cpu_supports("fma")) return false;
    if (p.bias || p.products != Products::float32 || p.of_x != Type::float32) return false;
    if (p.x[1] % block() || p.y[1] % block()) return false;
    const Sides one = {1, 1};
    if (p.weight[2] != 3 || p.weight[3] != 3 || p.groups != 1 || p.stride != one || p.dilation != one ||
        p.before != one || p.after[0] > 1 || p.after[1] > 1)
        return false;
    if (direction == Direction::weight_gradient) return threads <= p.x[1] / block();
    const Dims& covered = direction == Direction::input_gradient ? p.x : p.y;
    return covered[0] * ((covered[2] + 1) / 2) * ((covered[3] + 1) / 2) >= FEWEST_TILES * threads;
}

void winograd(Direction direction, const Problem& p, const std::vector<void*>& tensors, int threads) {
    static thread_local Scratch copies;
    p.validate();
    bool forward = direction == Direction::forward, differentiates = direction == Direction::weight_gradient;
    Images x{direction == Direction::input_gradient ? 2 : 0, p.x, p.blocked_x, direction == Direction::input_gradient};
    Images y{forward ? 2 : differentiates ? 1 : 0, p.y, p.blocked_y, forward};
    std::vector<void*> laid = tensors;
    float* memory = copies.floats((p.blocked_x ? 0 : x.floats()) + (p.blocked_y ? 0 : y.floats()));
    for (const Images& images : {x, y}) {
        if (images.blocked) continue;
        laid[images.at] = memory;
        memory += images.floats();
        if (!images.output) images.copy(false, tensors[images.at], laid[images.at], threads);
    }
    compute(direction, p, laid, threads);
    for (const Images& images : {x, y})
        if (!images.blocked && images.output) images.copy(true, laid[images.at], tensors[images.at], threads);
}

}  // namespace msaccel

#else

namespace msaccel {

bool fits_winograd(Direction, const Problem&, int) { return false; }

void winograd(Direction, const Problem&, const std::vector<void*>&, int) {}

}  // namespace msaccel

#endif
