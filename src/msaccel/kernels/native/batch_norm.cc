// Batch normalisation in training (arXiv 1502.03167), with ReLU after it if that is wanted:
//
//     m = n·h·w,  mean = Σx / m,  variance = Σ(x − mean)² / m,  r = 1 / √(variance + ε)
//     y = γ·r·(x − mean) + β,     gradient g of y; behind the ReLU only where y > 0
//     dβ = Σg,  dγ = Σ g·r·(x − mean),  dx = γ·r·(g − dβ/m − r·(x − mean)·dγ/m)
//
// Channel after channel: one of a usual size stays in the processor's cache for all passes over it. Sums are of 16
// lanes in float32 over at most a plane each, then in float64, whatever the threads, so their bits do not depend on
// those. The gradient computes y's sign again from x, which it reads anyway.
#include <algorithm>
#include <cmath>

#include "call.h"
#include "team.h"

using namespace msaccel;

namespace {

constexpr int LANES = 16;
constexpr int64_t LONGEST = 4096;  // numbers that are summed in float32
constexpr double OPERATIONS_PER_ELEMENT = 20;

struct Batch {
    int64_t n, channels, plane;

    explicit Batch(const Dims& x) : n(x[0]), channels(x[1]), plane(x[2] * x[3]) {}

    double elements() const { return static_cast<double>(n * plane); }  // of a channel

    int64_t at(int64_t sample, int64_t channel) const { return (sample * channels + channel) * plane; }

    template <typename Channel>
    void each_channel(const Channel& channel) const {
        int threads = threads_for(OPERATIONS_PER_ELEMENT * elements() * static_cast<double>(channels));
        int parts = static_cast<int>(std::min<int64_t>(threads, channels));
        team(threads)->parallel_for(parts, [&](int part, int of) {
            for (int64_t i = channels * part / of; i < channels * (part + 1) / of; ++i) channel(i);
        });
    }
};

// Σ term(i) for i below count.
template <typename Term>
double sum(int64_t count, const Term& term) {
    double total = 0;
    for (int64_t begin = 0; begin < count; begin += LONGEST) {
        int64_t end = std::min(begin + LONGEST, count), i = begin;
        float lanes[LANES] = {};
        for (; i + LANES <= end; i += LANES)
            for (int lane = 0; lane < LANES; ++lane) lanes[lane] += term(i + lane);
        for (int lane = 0; i < end; ++i, ++lane) lanes[lane] += term(i);
        for (float lane : lanes) total += lane;
    }
    return total;
}

const float* vector(const Call& call, int of, int64_t channels) {
    if (call.dims(of, 1, false)[0] != channels)
        throw Error("tensor " + std::to_string(of) + " of a batch normalisation has another length than x has channels");
    return static_cast<const float*>(call.data[of]);
}

float* vector_out(const Call& call, int of, int64_t channels) {
    return const_cast<float*>(vector(call, of, channels));
}

}  // namespace

// x, γ, β, moving mean, moving variance, (ε, share of the batch in the moving statistics, whether ReLU follows)
// → y, mean, r, new moving mean, new moving variance
EXPORTED int msaccel_batch_norm(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("batch normalisation", 11, 11);
    Dims dims = call.dims(0, 4, false);
    Batch batch(dims);
    if (call.dims(6, 4, false) != dims) throw Error("y of a batch normalisation has another shape than x");
    const float *x = static_cast<float*>(data[0]), *gamma = vector(call, 1, batch.channels);
    const float *beta = vector(call, 2, batch.channels), *old_mean = vector(call, 3, batch.channels);
    const float *old_variance = vector(call, 4, batch.channels), *settings = vector(call, 5, 3);
    float *y = static_cast<float*>(data[6]), *means = vector_out(call, 7, batch.channels);
    float *roots = vector_out(call, 8, batch.channels), *new_mean = vector_out(call, 9, batch.channels);
    float* new_variance = vector_out(call, 10, batch.channels);
    float epsilon = settings[0], share = settings[1];
    bool relu = settings[2] != 0;
    batch.each_channel([&](int64_t c) {
        double total = 0, squares = 0;
        for (int64_t i = 0; i < batch.n; ++i) {
            const float* from = x + batch.at(i, c);
            total += sum(batch.plane, [=](int64_t k) { return from[k]; });
        }
        float mean = static_cast<float>(total / batch.elements());
        for (int64_t i = 0; i < batch.n; ++i) {
            const float* from = x + batch.at(i, c);
            squares += sum(batch.plane, [=](int64_t k) { return (from[k] - mean) * (from[k] - mean); });
        }
        double variance = squares / batch.elements();
        float root = static_cast<float>(1 / std::sqrt(variance + epsilon));
        float scale = gamma[c] * root, shift = beta[c] - mean * scale;
        for (int64_t i = 0; i < batch.n; ++i) {
            const float* from = x + batch.at(i, c);
            float* to = y + batch.at(i, c);
            if (relu)
                for (int64_t k = 0; k < batch.plane; ++k) {
                    float value = from[k] * scale + shift;
                    to[k] = value <= 0 ? 0 : value;  // what is not a number stays
                }
            else
                for (int64_t k = 0; k < batch.plane; ++k) to[k] = from[k] * scale + shift;
        }
        means[c] = mean;
        roots[c] = root;
        new_mean[c] = old_mean[c] + share * (mean - old_mean[c]);
        // The moving variance is the unbiased one, as MindSpore's and PyTorch's.
        float unbiased = static_cast<float>(squares / std::max(batch.elements() - 1, 1.0));
        new_variance[c] = old_variance[c] + share * (unbiased - old_variance[c]);
    });
    return 0;
}

// dy, x, γ, β, mean, r, (ε, share, whether ReLU follows) → dx, dγ, dβ
EXPORTED int msaccel_batch_norm_gradient(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("the gradient of batch normalisation", 10, 10);
    Dims dims = call.dims(1, 4, false);
    Batch batch(dims);
    if (call.dims(0, 4, false) != dims || call.dims(7, 4, false) != dims)
        throw Error("the gradients of a batch normalisation have another shape than x");
    const float *dy = static_cast<float*>(data[0]), *x = static_cast<float*>(data[1]);
    const float *gamma = vector(call, 2, batch.channels), *beta = vector(call, 3, batch.channels);
    const float *means = vector(call, 4, batch.channels), *roots = vector(call, 5, batch.channels);
    bool relu = vector(call, 6, 3)[2] != 0;
    float *dx = static_cast<float*>(data[7]), *dgamma = vector_out(call, 8, batch.channels);
    float* dbeta = vector_out(call, 9, batch.channels);
    batch.each_channel([&](int64_t c) {
        float mean = means[c], scale = gamma[c] * roots[c], shift = beta[c] - mean * scale;
        // With −∞ as the bound everything passes, as without a ReLU; a y that is not a number lets its gradient pass.
        float bound = relu ? 0 : -INFINITY;
        auto passed = [=](float in, float gradient) { return in * scale + shift <= bound ? 0 : gradient; };
        double gradients = 0, products = 0;
        for (int64_t i = 0; i < batch.n; ++i) {
            const float *in = x + batch.at(i, c), *gradient = dy + batch.at(i, c);
            gradients += sum(batch.plane, [=](int64_t k) { return passed(in[k], gradient[k]); });
            products += sum(batch.plane, [=](int64_t k) { return passed(in[k], gradient[k]) * (in[k] - mean); });
        }
        dbeta[c] = static_cast<float>(gradients);
        dgamma[c] = static_cast<float>(products * roots[c]);
        float by_x = static_cast<float>(-scale * roots[c] * (products * roots[c]) / batch.elements());
        float constant = static_cast<float>(-scale * gradients / batch.elements());
        for (int64_t i = 0; i < batch.n; ++i) {
            const float *in = x + batch.at(i, c), *gradient = dy + batch.at(i, c);
            float* to = dx + batch.at(i, c);
            for (int64_t k = 0; k < batch.plane; ++k)
                to[k] = scale * passed(in[k], gradient[k]) + (by_x * (in[k] - mean) + constant);
        }
    });
    return 0;
}
