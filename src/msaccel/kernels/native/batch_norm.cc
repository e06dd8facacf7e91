// Batch normalisation in training (arXiv 1502.03167), with what often follows it: a tensor added, and ReLU.
//
//     m = n·h·w,  mean = Σx / m,  variance = Σ(x − mean)² / m,  r = 1 / √(variance + ε)
//     y = γ·r·(x − mean) + β [+ added], and behind a ReLU max(0, that)
//     g = gradient of y; behind a ReLU only where y > 0; it is also the gradient of what was added
//     dβ = Σg,  dγ = Σ g·r·(x − mean),  dx = γ·r·(g − dβ/m − r·(x − mean)·dγ/m)
//
// Group after group: a channel, or in the blocked layout sixteen of them, of a usual size stays in the processor's
// cache for all passes over it. Both are computed by the same loops over vectors. In the blocked layout a lane is a
// channel; else all lanes belong to one and are added up at the end. Lanes are summed in float32 over a few thousand
// numbers, then in float64, whatever the threads.
#include <algorithm>
#include <cmath>

#include "call.h"
#include "team.h"
#include "vector.h"

using namespace msaccel;

namespace {

struct Backward {
    Vector mean, scale, shift;
    double gradients[LANES] = {}, products[LANES] = {};  // Σ g, Σ g (x − mean)
};

}  // namespace

#define LOOPS "batch_norm_loops.h"
#include "targets.h"

namespace {

constexpr double OPERATIONS_PER_ELEMENT = 20;

struct Batch {
    Picture x;
    int64_t plane;     // numbers that lie together: of one channel and sample, or of sixteen channels
    int64_t groups;
    double elements;   // of a channel

    explicit Batch(const Picture& picture)
        : x(picture), plane(picture.dims[2] * picture.dims[3] * (picture.blocked ? LANES : 1)),
          groups(picture.blocked ? picture.dims[1] / LANES : picture.dims[1]),
          elements(static_cast<double>(picture.dims[0] * picture.dims[2] * picture.dims[3])) {}

    template <typename Group>
    void each_group(const Group& group) const {
        int threads = threads_for(OPERATIONS_PER_ELEMENT * elements * static_cast<double>(x.dims[1]));
        int parts = static_cast<int>(std::min<int64_t>(threads, groups));
        team(threads)->parallel_for(parts, [&](int part, int of) {
            for (int64_t i = groups * part / of; i < groups * (part + 1) / of; ++i) group(i);
        });
    }

    // The planes of a group lie this far from each other, and the first one here.
    int64_t step() const { return groups * plane; }
    int64_t at(int64_t group) const { return group * plane; }

    int64_t channel(int64_t group, int lane) const { return x.blocked ? group * LANES + lane : group; }

    // The numbers of a group's channels.
    INLINE Vector of(const float* channels, int64_t group) const {
        Vector lanes;
        for (int lane = 0; lane < LANES; ++lane) lanes[lane] = channels[channel(group, lane)];
        return lanes;
    }

    void put(const Vector& lanes, int64_t group, float* channels) const {
        for (int lane = 0; lane < (x.blocked ? LANES : 1); ++lane) channels[channel(group, lane)] = lanes[lane];
    }

    // What was summed up lane by lane, of each lane's channel.
    void settle(double* lanes) const {
        if (x.blocked) return;
        double total = 0;
        for (int lane = 0; lane < LANES; ++lane) total += lanes[lane];
        std::fill(lanes, lanes + LANES, total);
    }
};

// Of so many channels.
float* channels(const Call& call, int of, int64_t count) {
    if (call.dims(of, 1, false)[0] != count)
        throw Error("tensor " + std::to_string(of) + " of a batch normalisation has another length than x has channels");
    return static_cast<float*>(call.data[of]);
}

// A tensor of the shape of x.
float* alike(const Call& call, int of, const Batch& batch) {
    if (!(call.picture(of) == batch.x))
        throw Error("tensor " + std::to_string(of) + " of a batch normalisation has another shape than x");
    return static_cast<float*>(call.data[of]);
}

}  // namespace

// x, γ, β, moving mean, moving variance, (ε, share of the batch in the moving statistics, whether ReLU follows), [added]
// → y, mean, r, new moving mean, new moving variance
EXPORTED int msaccel_batch_norm(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("batch normalisation", 11, 12);
    Batch batch(call.picture(0));
    int64_t c = batch.x.dims[1];
    const float *x = alike(call, 0, batch), *gamma = channels(call, 1, c), *beta = channels(call, 2, c);
    const float *old_mean = channels(call, 3, c), *old_variance = channels(call, 4, c);
    const float *settings = channels(call, 5, 3), *added = count == 12 ? alike(call, 6, batch) : nullptr;
    int out = count - 5;
    float *y = alike(call, out, batch), *means = channels(call, out + 1, c), *roots = channels(call, out + 2, c);
    float *new_mean = channels(call, out + 3, c), *new_variance = channels(call, out + 4, c);
    float epsilon = settings[0], share = settings[1];
    bool relu = settings[2] != 0;
    batch.each_group([&](int64_t group) {
        int64_t begin = batch.at(group), step = batch.step();
        double totals[LANES] = {}, squares[LANES] = {};
        Vector mean, root, moving_mean, moving_variance;
        for (int64_t i = 0; i < batch.x.dims[0]; ++i) WIDEST(sum)(x + begin + i * step, batch.plane, totals);
        batch.settle(totals);
        for (int lane = 0; lane < LANES; ++lane) mean[lane] = static_cast<float>(totals[lane] / batch.elements);
        for (int64_t i = 0; i < batch.x.dims[0]; ++i) WIDEST(sum_squares)(x + begin + i * step, batch.plane, mean, squares);
        batch.settle(squares);
        for (int lane = 0; lane < LANES; ++lane) {
            root[lane] = static_cast<float>(1 / std::sqrt(squares[lane] / batch.elements + epsilon));
            // The moving variance is the unbiased one, as MindSpore's and PyTorch's.
            float unbiased = static_cast<float>(squares[lane] / std::max(batch.elements - 1, 1.0));
            float before = old_mean[batch.channel(group, lane)], spread = old_variance[batch.channel(group, lane)];
            // What is not finite would stay in them for good, though the guard refuses the update it comes from.
            bool finite = std::isfinite(mean[lane]) && std::isfinite(unbiased);
            moving_mean[lane] = finite ? before + share * (mean[lane] - before) : before;
            moving_variance[lane] = finite ? spread + share * (unbiased - spread) : spread;
        }
        Vector scale = batch.of(gamma, group) * root, shift = batch.of(beta, group) - mean * scale;
        for (int64_t i = 0; i < batch.x.dims[0]; ++i) {
            int64_t at = begin + i * step;
            WIDEST(normalise)(x + at, added ? added + at : nullptr, relu, batch.plane, scale, shift, y + at);
        }
        batch.put(mean, group, means);
        batch.put(root, group, roots);
        batch.put(moving_mean, group, new_mean);
        batch.put(moving_variance, group, new_variance);
    });
    return 0;
}

// x, γ, β, moving mean, moving variance, (ε, share, whether ReLU follows), [added] → y, by the moving statistics
EXPORTED int msaccel_batch_norm_inference(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("batch normalisation", 7, 8);
    Batch batch(call.picture(0));
    int64_t c = batch.x.dims[1];
    const float *x = alike(call, 0, batch), *gamma = channels(call, 1, c), *beta = channels(call, 2, c);
    const float *mean = channels(call, 3, c), *variance = channels(call, 4, c), *settings = channels(call, 5, 3);
    const float* added = count == 8 ? alike(call, 6, batch) : nullptr;
    float* y = alike(call, count - 1, batch);
    bool relu = settings[2] != 0;
    batch.each_group([&](int64_t group) {
        Vector scale = batch.of(gamma, group), spread = batch.of(variance, group);
        for (int lane = 0; lane < LANES; ++lane) scale[lane] /= std::sqrt(spread[lane] + settings[0]);
        Vector shift = batch.of(beta, group) - batch.of(mean, group) * scale;
        for (int64_t i = 0; i < batch.x.dims[0]; ++i) {
            int64_t at = batch.at(group) + i * batch.step();
            WIDEST(normalise)(x + at, added ? added + at : nullptr, relu, batch.plane, scale, shift, y + at);
        }
    });
    return 0;
}

// dy, x, γ, β, mean, r, (ε, share, whether ReLU follows), [y, where a tensor was added] → dx, dγ, dβ, [dadded]
EXPORTED int msaccel_batch_norm_gradient(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    bool adds = count == 12;
    if (!adds) call.must_have("the gradient of batch normalisation", 10, 10);
    Batch batch(call.picture(1));
    int64_t c = batch.x.dims[1];
    const float *dy = alike(call, 0, batch), *x = alike(call, 1, batch), *gamma = channels(call, 2, c);
    const float *beta = channels(call, 3, c), *means = channels(call, 4, c), *roots = channels(call, 5, c);
    bool relu = channels(call, 6, 3)[2] != 0;
    const float* y = adds ? alike(call, 7, batch) : nullptr;
    int out = adds ? 8 : 7;
    float *dx = alike(call, out, batch), *dgamma = channels(call, out + 1, c), *dbeta = channels(call, out + 2, c);
    float* dadded = adds ? alike(call, out + 3, batch) : nullptr;
    batch.each_group([&](int64_t group) {
        Backward b;
        Vector root = batch.of(roots, group);
        b.mean = batch.of(means, group);
        b.scale = batch.of(gamma, group) * root;
        b.shift = batch.of(beta, group) - b.mean * b.scale;
        for (int64_t i = 0; i < batch.x.dims[0]; ++i) {
            int64_t at = batch.at(group) + i * batch.step();
            WIDEST(sum_gradient)(
                dy + at, x + at, adds ? y + at : nullptr, relu, batch.plane, b, adds ? dadded + at : nullptr);
        }
        batch.settle(b.gradients);
        batch.settle(b.products);
        Vector gradient, product, by_x, constant;
        for (int lane = 0; lane < LANES; ++lane) {
            gradient[lane] = static_cast<float>(b.gradients[lane]);
            product[lane] = static_cast<float>(b.products[lane] * root[lane]);
            by_x[lane] = static_cast<float>(
                -b.scale[lane] * root[lane] * (b.products[lane] * root[lane]) / batch.elements);
            constant[lane] = static_cast<float>(-b.scale[lane] * b.gradients[lane] / batch.elements);
        }
        batch.put(product, group, dgamma);
        batch.put(gradient, group, dbeta);
        for (int64_t i = 0; i < batch.x.dims[0]; ++i) {
            int64_t at = batch.at(group) + i * batch.step();
            // Where a tensor was added its gradient is what passed the ReLU.
            WIDEST(spread_gradient)(adds ? dadded + at : dy + at, x + at, relu && !adds, batch.plane, b, by_x, constant, dx + at);
        }
    });
    return 0;
}
