// Steps of the newer optimizers over all tensors, one operator each; their formulas are in msaccel/training/optimizers.
//
// Inputs begin with good (1 or 0), the rate and the optimizer's numbers, which end with one for each tensor: its weight
// decay, or for LARS and LAMB whether it is a layer, with a decay and a rate of its own. 1 − β is passed beside β, as
// rounded once. The output is good; weights and state are updated in place, or left as they are if good is 0.
#include <cmath>
#include <vector>

#include "args.h"
#include "chunks.h"

using namespace msaccel;

#define LOOPS "optimizer_loops.h"
#include "dispatch.h"

namespace {

struct Step {
    const Args& args;
    int before, tensors;
    bool good;
    float rate;
    const float *numbers, *of_tensors;
    Chunks chunks;

    // `before` inputs come before the first of `groups` groups of tensors.
    Step(const Args& given, const char* name, int before, int groups, int64_t count_numbers)
        : args(given), before(before), tensors(args.tensors_of(name, before, groups, 1)), good(*args.floats(0) != 0),
          rate(*args.floats(1)), numbers(args.floats(2)), of_tensors(numbers + count_numbers),
          chunks(args.sizes(before, tensors)) {
        if (args.dims(2, 1)[0] != count_numbers + tensors)
            throw Error(std::string(name) + " has one number for each weight");
        *args.floats(args.count - 1) = *args.floats(0);
    }

    float* at(int group, const Chunks::Chunk& chunk) const {
        return args.floats(before + group * tensors + chunk.tensor) + chunk.begin;
    }

    // Calls work(chunk) for all chunks.
    template <typename Work>
    void each(const Work& work) const {
        chunks.each([&](int, const Chunks::Chunk& chunk) { work(chunk); });
    }

    // For each tensor the norm whose square has sum(chunk) as the part of a chunk.
    template <typename Sum>
    std::vector<float> norms(const Sum& sum) const {
        std::vector<double> parts(chunks.all.size()), squares(tensors);
        chunks.each([&](int i, const Chunks::Chunk& chunk) { parts[i] = sum(chunk); });
        for (size_t i = 0; i < parts.size(); ++i) squares[chunks.all[i].tensor] += parts[i];
        std::vector<float> found(tensors);
        for (int i = 0; i < tensors; ++i) found[i] = static_cast<float>(std::sqrt(squares[i]));
        return found;
    }

    std::vector<float> norms_of(int group) const {
        return norms([&](const Chunks::Chunk& chunk) { return DISPATCH(sum_of_squares)(at(group, chunk), chunk.size); });
    }
};

// c ← β c + (1 − β): 1 − βᵗ, as the moment of a gradient of ones
float corrected(float* correction, const float* beta) { return *correction = beta[0] * *correction + beta[1]; }

template <bool ADAPTIVE>
void schedule_free(const Args& args) {
    constexpr int BEFORE = ADAPTIVE ? 5 : 4;
    Step step(args, "a schedule-free step", BEFORE, ADAPTIVE ? 5 : 4, 4 + ADAPTIVE);
    if (!step.good) return;
    const float* beta2 = step.numbers + 1;
    float* sum = args.floats(3);
    float rate = ADAPTIVE ? step.rate * std::sqrt(corrected(args.floats(BEFORE - 1), beta2)) : step.rate;
    *sum += rate * rate;
    float share = rate * rate / std::max(*sum, step.numbers[3]);
    step.each([&](const Chunks::Chunk& chunk) {
        DISPATCH(schedule_free_step<ADAPTIVE>)(
            step.at(0, chunk), chunk.size, rate, step.numbers[0], beta2, ADAPTIVE ? step.numbers[4] : 0, share,
            step.of_tensors[chunk.tensor], step.at(1, chunk), step.at(2, chunk), step.at(3, chunk),
            ADAPTIVE ? step.at(4, chunk) : nullptr);
    });
}

}  // namespace

// good, rate, (β₁, 1 − β₁, β₂, 1 − β₂, decays), gradients, weights, moments → good
OPERATOR(lion) {
    Args args{count, data, ranks, shapes, types};
    Step step(args, "a step of Lion", 3, 3, 4);
    if (!step.good) return 0;
    step.each([&](const Chunks::Chunk& chunk) {
        DISPATCH(lion_step)(
            step.at(0, chunk), chunk.size, step.rate, step.numbers, step.numbers + 2, step.of_tensors[chunk.tensor],
            step.at(1, chunk), step.at(2, chunk));
    });
    return 0;
}

// good, rate, (momentum, η, decay, layers), gradients, weights, velocities → good
OPERATOR(lars) {
    Args args{count, data, ranks, shapes, types};
    Step step(args, "a step of LARS", 3, 3, 3);
    if (!step.good) return 0;
    float momentum = step.numbers[0], eta = step.numbers[1], decay = step.numbers[2];
    std::vector<float> gradients = step.norms_of(0), weights = step.norms_of(1);
    step.each([&](const Chunks::Chunk& chunk) {
        float of_gradient = gradients[chunk.tensor], of_weight = weights[chunk.tensor], ratio = 1;
        bool layer = step.of_tensors[chunk.tensor] != 0;
        if (layer && of_gradient > 0 && of_weight > 0) ratio = of_weight / ((of_gradient + decay * of_weight) / eta);
        DISPATCH(lars_step)(
            step.at(0, chunk), chunk.size, step.rate, momentum, ratio, layer ? decay : 0, step.at(1, chunk),
            step.at(2, chunk));
    });
    return 0;
}

// good, rate, (β₁, 1 − β₁, β₂, 1 − β₂, ε, decay, layers), 1 − β₁ᵗ, 1 − β₂ᵗ, gradients, weights, first moments, second
// moments → good; both corrections are updated in place too
OPERATOR(lamb) {
    Args args{count, data, ranks, shapes, types};
    Step step(args, "a step of LAMB", 5, 4, 6);
    if (!step.good) return 0;
    const float *beta1 = step.numbers, *beta2 = step.numbers + 2;
    float epsilon = step.numbers[4], decay = step.numbers[5];
    float correction1 = corrected(args.floats(3), beta1), correction2 = corrected(args.floats(4), beta2);
    auto decay_of = [&](const Chunks::Chunk& chunk) { return step.of_tensors[chunk.tensor] != 0 ? decay : 0; };
    std::vector<float> weights = step.norms_of(1), steps = step.norms([&](const Chunks::Chunk& chunk) {
        float *m = step.at(2, chunk), *v = step.at(3, chunk);
        DISPATCH(lamb_moments)(step.at(0, chunk), chunk.size, beta1, beta2, m, v);
        return DISPATCH(lamb_squares)(
            step.at(1, chunk), m, v, chunk.size, correction1, correction2, epsilon, decay_of(chunk));
    });
    step.each([&](const Chunks::Chunk& chunk) {
        float of_step = steps[chunk.tensor], of_weight = weights[chunk.tensor], ratio = 1;
        if (step.of_tensors[chunk.tensor] != 0 && of_step > 0 && of_weight > 0) ratio = of_weight / of_step;
        DISPATCH(lamb_step)(
            step.at(1, chunk), step.at(2, chunk), step.at(3, chunk), chunk.size, step.rate, correction1, correction2,
            epsilon, decay_of(chunk), ratio);
    });
    return 0;
}

// good, rate, (1 − β₁, β₂, 1 − β₂, least Σ γ², decays), Σ γ², gradients, y, z, x → good; the sum is updated in place too
OPERATOR(schedule_free_sgd) {
    schedule_free<false>(Args{count, data, ranks, shapes, types});
    return 0;
}

// good, rate, (1 − β₁, β₂, 1 − β₂, least Σ γ², ε, decays), Σ γ², 1 − β₂ᵗ, gradients, y, z, x, second moments → good; the
// sum and the correction are updated in place too
OPERATOR(schedule_free_adamw) {
    schedule_free<true>(Args{count, data, ranks, shapes, types});
    return 0;
}
