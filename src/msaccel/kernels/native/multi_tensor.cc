// Operations on all gradients at once, one operator each: global norm, scaling, accumulation, and the steps of momentum
// and Adam. A step with good = 0 changes nothing.
#include <algorithm>
#include <cmath>

#include "args.h"
#include "chunks.h"

using namespace msaccel;

#define LOOPS "multi_tensor_loops.h"
#include "dispatch.h"

namespace {

// Steps that are not taken are zero.
void clear(const Args& args, int first) {
    for (int i = first; i < args.count; ++i) std::fill_n(args.floats(i), args.elements(i), 0.0f);
}

// After good, rate and (momentum, decay of each weight): gradients, weights, velocities, which are updated in place; if
// it does not move the weights, their steps.
template <bool MOVES>
void momentum(const Args& args, int tensors) {
    if (args.dims(2, 1)[0] != 1 + tensors) throw Error("a step with momentum has one decay for each weight");
    if (*args.floats(0) == 0) return;
    float rate = *args.floats(1);
    const float *momentum = args.floats(2), *decays = momentum + 1;
    Chunks(args.sizes(3, tensors)).each([&](int, const Chunks::Chunk& chunk) {
        auto at = [&](int group) { return args.floats(3 + group * tensors + chunk.tensor) + chunk.begin; };
        DISPATCH(momentum_step<MOVES>)(
            at(0), chunk.size, rate, *momentum, decays[chunk.tensor], at(1), at(2), MOVES ? nullptr : at(3));
    });
}

// After good, rate, (β₁, β₂, ε, whether decay is decoupled, decay of each weight), β₁ᵗ and β₂ᵗ: gradients, weights, first
// moments, second moments, which are updated in place with both powers; if it does not move the weights, their steps.
template <bool MOVES>
void adam(const Args& args, int tensors) {
    if (args.dims(2, 1)[0] != 4 + tensors) throw Error("a step of Adam has one decay for each weight");
    if (*args.floats(0) == 0) return;
    const float* numbers = args.floats(2);
    float beta1 = numbers[0], beta2 = numbers[1], epsilon = numbers[2];
    bool decoupled = numbers[3] != 0;
    float *power1 = args.floats(3), *power2 = args.floats(4);
    *power1 *= beta1;
    *power2 *= beta2;
    float rate = *args.floats(1), corrected = rate * std::sqrt(1 - *power2) / (1 - *power1);
    Chunks(args.sizes(5, tensors)).each([&](int, const Chunks::Chunk& chunk) {
        auto at = [&](int group) { return args.floats(5 + group * tensors + chunk.tensor) + chunk.begin; };
        float decay = numbers[4 + chunk.tensor];
        DISPATCH(adam_step<MOVES>)(
            at(0), chunk.size, corrected, beta1, beta2, epsilon, decoupled ? 0 : decay,
            decoupled ? 1 - rate * decay : 1, at(1), at(2), at(3), MOVES ? nullptr : at(4));
    });
}

}  // namespace

// gradients → √ Σ g²
OPERATOR(global_norm) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the global norm", 2, 1 << 20);
    Chunks chunks(args.sizes(0, count - 1));
    std::vector<double> sums(chunks.all.size());
    chunks.each([&](int i, const Chunks::Chunk& chunk) {
        sums[i] = DISPATCH(sum_of_squares)(args.floats(chunk.tensor) + chunk.begin, chunk.size);
    });
    double total = 0;
    for (double sum : sums) total += sum;
    *static_cast<float*>(data[count - 1]) = static_cast<float>(std::sqrt(total));
    return 0;
}

// factor, gradients → gradients · factor
OPERATOR(scale) {
    Args args{count, data, ranks, shapes, types};
    int tensors = args.tensors_of("a product with a number", 1, 2, 0);
    float factor = *args.floats(0);
    Chunks(args.sizes(1, tensors)).each([&](int, const Chunks::Chunk& chunk) {
        auto at = [&](int group) { return args.floats(1 + group * tensors + chunk.tensor) + chunk.begin; };
        DISPATCH(scale)(at(0), chunk.size, factor, at(1));
    });
    return 0;
}

// whether this is the window's first micro-batch (bool), gradients, sums → 1; the sums are updated in place
OPERATOR(accumulate) {
    Args args{count, data, ranks, shapes, types};
    int tensors = args.tensors_of("the sums of a window", 1, 2, 1);
    if (std::strcmp(types[0], "bool")) throw Error("whether gradients open a window is wanted as a bool");
    bool first = *static_cast<bool*>(data[0]);
    Chunks(args.sizes(1, tensors)).each([&](int, const Chunks::Chunk& chunk) {
        auto at = [&](int group) { return args.floats(1 + group * tensors + chunk.tensor) + chunk.begin; };
        if (first) return std::copy_n(at(0), chunk.size, at(1)), void();
        DISPATCH(add)(at(0), chunk.size, at(1));
    });
    *args.floats(count - 1) = 1;
    return 0;
}

// good (1 or 0), rate, (momentum, decay of each weight), gradients, weights, velocities → good; weights and velocities
// are updated in place
OPERATOR(momentum) {
    Args args{count, data, ranks, shapes, types};
    momentum<true>(args, args.tensors_of("a step with momentum", 3, 3, 1));
    *args.floats(count - 1) = *args.floats(0);
    return 0;
}

// the same → by how much the weights would fall; the velocities are updated in place
OPERATOR(momentum_difference) {
    Args args{count, data, ranks, shapes, types};
    int tensors = args.tensors_of("a step with momentum", 3, 4, 0);
    momentum<false>(args, tensors);
    if (*args.floats(0) == 0) clear(args, count - tensors);
    return 0;
}

// good (1 or 0), rate, (β₁, β₂, ε, whether decay is decoupled, decay of each weight), β₁ᵗ, β₂ᵗ, gradients, weights,
// first moments, second moments → good; weights, moments and both powers are updated in place
OPERATOR(adam) {
    Args args{count, data, ranks, shapes, types};
    adam<true>(args, args.tensors_of("a step of Adam", 5, 4, 1));
    *args.floats(count - 1) = *args.floats(0);
    return 0;
}

// the same → by how much the weights would fall; moments and powers are updated in place
OPERATOR(adam_difference) {
    Args args{count, data, ranks, shapes, types};
    int tensors = args.tensors_of("a step of Adam", 5, 5, 0);
    adam<false>(args, tensors);
    if (*args.floats(0) == 0) clear(args, count - tensors);
    return 0;
}
