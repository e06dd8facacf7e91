#include "winograd.h"

#include "half.h"
#include "plan_cache.h"
#include "scratch.h"
#include "thread_pool.h"
#include "vector.h"

#if defined(__x86_64__) && !defined(__clang__)
namespace msaccel {
namespace {

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define WIDTH 8
namespace avx2 {
#include "winograd_loops.h"
#include "winograd_products.h"
#include "winograd_passes.h"
}
#undef WIDTH
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f")
#define WIDTH 16
namespace avx512 {
#include "winograd_loops.h"
#include "winograd_products.h"
#include "winograd_passes.h"
}
#pragma GCC pop_options

#if __GNUC__ >= 11  // earlier ones do not know these instructions, or AMX
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512bf16")
#define PAIRS
namespace avx512_bf16 {
#include "winograd_loops.h"
#include "winograd_products.h"
#include "winograd_passes.h"
}
#undef PAIRS
#pragma GCC pop_options
#endif
#undef WIDTH

constexpr int64_t FEWEST_TILES = 32;     // per thread, below which transforming all kernels does not pay
constexpr int64_t FEWEST_CHANNELS = 32;  // in bfloat16, in which transforming 16 takes as long as oneDNN's products
constexpr int64_t KIND = 4;              // in keys of plans, behind those of products of matrices

Scratch& scratch() {
    static thread_local Scratch one;
    return one;
}

// The images of a problem: their place among its tensors, and whether they are computed.
struct Images {
    int at;
    const Dims& dims;
    bool blocked, half, output;

    int64_t floats() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
    bool copied() const { return !blocked || half; }

    // To blocks of float32, or back.
    void copy(bool back, void* from, void* to, int threads) const {
        if (half) {
            if (back) return narrow(Conversion::bfloat16, static_cast<float*>(from), to, floats(), threads);
            return widen(Conversion::bfloat16, from, static_cast<float*>(to), floats(), threads);
        }
        Key key = {KIND, back, threads};
        key.insert(key.end(), dims.begin(), dims.end());
        auto make = [&] {
            Layout first = plain(dims, dnnl_f32), second = images(dims, dnnl_f32, Order::blocks);
            if (back) std::swap(first, second);
            return make_copy(dims, std::move(first), std::move(second), threads);
        };
        plan_cache().get(key, make)->run({from, to});
    }
};

// HOW: with factors in float32, or rounded to bfloat16.
template <Products HOW>
void compute_in_float32(Direction direction, const Problem& p, const std::vector<void*>& tensors, int threads) {
    auto floats = [&](int i) { return static_cast<float*>(tensors[i]); };
    if (direction == Direction::weight_gradient) {
        auto differentiate =
            generation() == 2 ? avx512::weight_gradient<HOW, float, float> : avx2::weight_gradient<HOW, float, float>;
        return differentiate(p, floats(0), floats(1), floats(2), scratch(), threads);
    }
    auto convolve =
        generation() == 2 ? avx512::convolve_images<HOW, float, float> : avx2::convolve_images<HOW, float, float>;
    convolve(p, direction == Direction::input_gradient, floats(0), floats(1), floats(2), scratch(), threads);
}

#if __GNUC__ >= 11

// The types of the first images and of the second are those of the pointers.
template <typename First, typename Second>
void compute_in_bfloat16(
    Direction direction, const Problem& p, First* first, Second* second, void* weight, int threads) {
    float* floats = static_cast<float*>(weight);
    if (direction == Direction::weight_gradient)
        return avx512_bf16::weight_gradient<Products::bfloat16>(p, first, second, floats, scratch(), threads);
    avx512_bf16::convolve_images<Products::bfloat16>(
        p, direction == Direction::input_gradient, first, floats, second, scratch(), threads);
}

void compute_in_bfloat16(Direction direction, const Problem& p, const std::vector<void*>& tensors, int threads) {
    bool differentiates = direction == Direction::weight_gradient;
    void *first = tensors[0], *second = tensors[differentiates ? 1 : 2], *weight = tensors[differentiates ? 2 : 1];
    Type types[2] = {p.of_x, p.of_y};
    if (direction == Direction::input_gradient) std::swap(types[0], types[1]);
    auto with = [&](auto* images) {
        if (types[1] == Type::bfloat16)
            compute_in_bfloat16(direction, p, images, static_cast<Bfloat16*>(second), weight, threads);
        else
            compute_in_bfloat16(direction, p, images, static_cast<float*>(second), weight, threads);
    };
    types[0] == Type::bfloat16 ? with(static_cast<Bfloat16*>(first)) : with(static_cast<float*>(first));
}

bool multiplies_pairs() {
    static const bool found = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                              __builtin_cpu_supports("avx512vl");
    return found && !multiplies_tiles();  // oneDNN's products by AMX are faster
}

#else

void compute_in_bfloat16(Direction, const Problem&, const std::vector<void*>&, int) {}

bool multiplies_pairs() { return false; }

#endif

}  // namespace

bool fits_winograd(Direction direction, const Problem& p, int threads) {
    if (!generation() || !__builtin_cpu_supports("fma")) return false;
    if (p.bias || p.of_x == Type::float16) return false;
    if (p.products != Products::float32) {
        bool in_blocks = p.order_x == Order::blocks && p.order_y == Order::blocks;
        if (!in_blocks || std::min(p.x[1], p.y[1]) < FEWEST_CHANNELS) return false;
        if (p.products == Products::bfloat16 && !multiplies_pairs()) return false;
    }
    if (p.x[1] % block() || p.y[1] % block()) return false;
    const Sides one = {1, 1};
    if (p.weight[2] != 3 || p.weight[3] != 3 || p.groups != 1 || p.stride != one || p.dilation != one ||
        p.before != one || p.after[0] > 1 || p.after[1] > 1)
        return false;
    const Dims& covered = direction == Direction::input_gradient ? p.x : p.y;
    int64_t tiles = covered[0] * ((covered[2] + 1) / 2) * ((covered[3] + 1) / 2);
    if (direction != Direction::weight_gradient) return tiles >= FEWEST_TILES * threads;
    return threads <= p.x[1] / block() && (p.products == Products::float32 || tiles % 2 == 0);
}

void winograd(Direction direction, const Problem& p, const std::vector<void*>& tensors, int threads) {
    static thread_local Scratch copies;
    p.validate();
    bool forward = direction == Direction::forward, differentiates = direction == Direction::weight_gradient;
    if (p.products == Products::bfloat16) return compute_in_bfloat16(direction, p, tensors, threads);
    bool into_x = direction == Direction::input_gradient;
    Images x{into_x ? 2 : 0, p.x, p.order_x == Order::blocks, p.of_x == Type::bfloat16, into_x};
    Images y{
        forward ? 2 : differentiates ? 1 : 0, p.y, p.order_y == Order::blocks, p.of_y == Type::bfloat16, forward};
    std::vector<void*> laid = tensors;
    float* memory = copies.floats((x.copied() ? x.floats() : 0) + (y.copied() ? y.floats() : 0));
    for (const Images& images : {x, y}) {
        if (!images.copied()) continue;
        laid[images.at] = memory;
        memory += images.floats();
        if (!images.output) images.copy(false, tensors[images.at], laid[images.at], threads);
    }
    auto compute =
        p.products == Products::float32 ? compute_in_float32<Products::float32> : compute_in_float32<Products::emulated>;
    compute(direction, p, laid, threads);
    for (const Images& images : {x, y})
        if (images.copied() && images.output) images.copy(true, laid[images.at], tensors[images.at], threads);
}

}  // namespace msaccel

#else

namespace msaccel {

bool fits_winograd(Direction, const Problem&, int) { return false; }

void winograd(Direction, const Problem&, const std::vector<void*>&, int) {}

}  // namespace msaccel

#endif
