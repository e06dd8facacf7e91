// Batch normalisation (arXiv 1502.03167), fused with adding a tensor and a ReLU, which often follow it. In training:
//
//     m = n·h·w,  mean = Σx / m,  variance = Σ(x − mean)² / m,  r = 1 / √(variance + ε)
//     y = γ·r·(x − mean) + β [+ added], and max(0, y) with a ReLU
//     g = gradient of y, with a ReLU 0 where y ≤ 0; it is also the gradient of the added tensor
//     dβ = Σg,  dγ = Σ g·r·(x − mean),  dx = γ·r·(g − dβ/m − r·(x − mean)·dγ/m)
//
// All passes over one group, a channel or a block of channels, are made before the next group's, because a group of the
// usual size stays in the processor's cache. The same vector loops serve both layouts: lane i belongs to channel i modulo
// the group's channels, and the lanes of a channel are added at the end. Each lane is summed in float32 over LONGEST
// elements, then in float64. The order does not depend on the number of threads.
#include <algorithm>
#include <cmath>

#include "args.h"
#include "thread_pool.h"
#include "vector.h"

using namespace msaccel;

namespace {

struct Backward {
    Vector mean, scale, shift;
    double gradients[LANES] = {}, products[LANES] = {};  // Σ g, Σ g (x − mean)
};

}  // namespace

#define LOOPS "batch_norm_loops.h"
#include "dispatch.h"

namespace {

constexpr double OPERATIONS_PER_ELEMENT = 20, OPERATIONS_PER_GROUP = 4000;  // of a group besides its elements

struct Batch {
    Image x;
    Type type;         // float32 or bfloat16
    int together;      // channels of a group
    int64_t plane;     // contiguous elements of a sample: of a group
    int64_t groups;
    double elements;   // per channel

    Batch(const Args& args, int of) : Batch(args.image(of, args.type(of)), args.type(of)) {
        if (type == Type::float16) throw Error("batch normalisation computes in float32 and bfloat16, not in float16");
    }

    Batch(const Image& image, Type of_x)
        : x(image), type(of_x), together(image.together()), plane(image.dims[2] * image.dims[3] * together),
          groups(image.dims[1] / together),
          elements(static_cast<double>(image.dims[0] * image.dims[2] * image.dims[3])) {}

    template <typename Group>
    void each_group(const Group& group) const {
        int threads = threads_for(
            OPERATIONS_PER_ELEMENT * elements * static_cast<double>(x.dims[1]) +
            OPERATIONS_PER_GROUP * static_cast<double>(groups));
        int parts = static_cast<int>(std::min<int64_t>(threads, groups));
        thread_pool(threads)->parallel_for(parts, [&](int part, int of) {
            for (int64_t i = groups * part / of; i < groups * (part + 1) / of; ++i) group(i);
        });
    }

    // Distance between consecutive planes of a group, and offset of the first.
    int64_t step() const { return groups * plane; }
    int64_t at(int64_t group) const { return group * plane; }

    // Repeats the values of a group's channels in the other lanes.
    INLINE void repeat(Vector& lanes) const {
        if (together == 1) {
            float only = lanes[0];
            for (int lane = 1; lane < LANES; ++lane) lanes[lane] = only;
        } else {
            for (int lane = together; lane < LANES; ++lane) lanes[lane] = lanes[lane - together];
        }
    }

    // Turns sums per lane into sums per channel, in the first lanes.
    void sum_lanes(double* lanes) const {
        for (int channel = 0; channel < together; ++channel) {
            double total = lanes[channel];
            for (int lane = channel + together; lane < LANES; lane += together) total += lanes[lane];
            lanes[channel] = total;
        }
    }
};

// A per-channel vector.
float* channels(const Args& args, int of, int64_t count) {
    if (args.dims(of, 1)[0] != count)
        throw Error(
            "tensor " + std::to_string(of) + " of a batch normalisation has another length than x has channels");
    return static_cast<float*>(args.data[of]);
}

// A tensor of the shape and type of x.
template <typename Element>
Element* same_shape(const Args& args, int of, const Batch& batch) {
    if (!(args.image(of, batch.type) == batch.x))
        throw Error("tensor " + std::to_string(of) + " of a batch normalisation has another shape than x");
    return static_cast<Element*>(args.data[of]);
}

template <typename Element>
void normalise_batch(const Args& args) {
    int count = args.count;
    Batch batch(args, 0);
    int64_t c = batch.x.dims[1];
    const Element* x = same_shape<Element>(args, 0, batch);
    const float *gamma = channels(args, 1, c), *beta = channels(args, 2, c);
    float *moving_mean = channels(args, 3, c), *moving_variance = channels(args, 4, c);
    const float* settings = channels(args, 5, 3);
    const Element* added = count == 11 ? same_shape<Element>(args, 6, batch) : nullptr;
    int out = count - 4;
    Element* y = same_shape<Element>(args, out, batch);
    float *means = channels(args, out + 1, c), *variances = channels(args, out + 2, c);
    float* roots = channels(args, out + 3, c);
    float epsilon = settings[0], share = settings[1];
    bool relu = settings[2] != 0;
    batch.each_group([&](int64_t group) {
        int64_t begin = batch.at(group), step = batch.step(), first = group * batch.together;
        double totals[LANES] = {}, squares[LANES] = {};
        Vector mean, scale, shift;
        for (int64_t i = 0; i < batch.x.dims[0]; ++i)
            DISPATCH(sum<Element>)(x + begin + i * step, batch.plane, totals);
        batch.sum_lanes(totals);
        for (int lane = 0; lane < batch.together; ++lane)
            means[first + lane] = mean[lane] = static_cast<float>(totals[lane] / batch.elements);
        batch.repeat(mean);
        for (int64_t i = 0; i < batch.x.dims[0]; ++i)
            DISPATCH(sum_squares<Element>)(x + begin + i * step, batch.plane, mean, squares);
        batch.sum_lanes(squares);
        for (int lane = 0; lane < batch.together; ++lane) {
            int64_t channel = first + lane;
            double variance = squares[lane] / batch.elements;
            float root = static_cast<float>(1 / std::sqrt(variance + epsilon));
            // The moving variance is the unbiased one, as in MindSpore and PyTorch; a single value has none.
            float unbiased = static_cast<float>(squares[lane] / std::max(batch.elements - 1, 1.0));
            // A value that is not finite would stay in the moving statistics although the update is skipped.
            bool finite = std::isfinite(mean[lane]) && std::isfinite(unbiased);
            if (finite) moving_mean[channel] += share * (mean[lane] - moving_mean[channel]);
            if (finite && batch.elements > 1)
                moving_variance[channel] += share * (unbiased - moving_variance[channel]);
            variances[channel] = static_cast<float>(variance);
            roots[channel] = root;
            scale[lane] = gamma[channel] * root;
            shift[lane] = beta[channel] - mean[lane] * scale[lane];
        }
        batch.repeat(scale);
        batch.repeat(shift);
        for (int64_t i = 0; i < batch.x.dims[0]; ++i) {
            int64_t at = begin + i * step;
            DISPATCH(normalise<Element>)(
                x + at, added ? added + at : nullptr, relu, batch.plane, scale, shift, y + at);
        }
    });
}

template <typename Element>
void normalise_by_moving(const Args& args) {
    int count = args.count;
    Batch batch(args, 0);
    int64_t c = batch.x.dims[1];
    const Element* x = same_shape<Element>(args, 0, batch);
    const float *gamma = channels(args, 1, c), *beta = channels(args, 2, c);
    const float *mean = channels(args, 3, c), *variance = channels(args, 4, c), *settings = channels(args, 5, 3);
    const Element* added = count == 8 ? same_shape<Element>(args, 6, batch) : nullptr;
    Element* y = same_shape<Element>(args, count - 1, batch);
    bool relu = settings[2] != 0;
    batch.each_group([&](int64_t group) {
        Vector scale, shift;
        for (int lane = 0; lane < batch.together; ++lane) {
            int64_t channel = group * batch.together + lane;
            scale[lane] = gamma[channel] / std::sqrt(variance[channel] + settings[0]);
            shift[lane] = beta[channel] - mean[channel] * scale[lane];
        }
        batch.repeat(scale);
        batch.repeat(shift);
        for (int64_t i = 0; i < batch.x.dims[0]; ++i) {
            int64_t at = batch.at(group) + i * batch.step();
            DISPATCH(normalise<Element>)(
                x + at, added ? added + at : nullptr, relu, batch.plane, scale, shift, y + at);
        }
    });
}

template <typename Element>
void differentiate(const Args& args) {
    int count = args.count;
    bool adds = count == 12;
    Batch batch(args, 1);
    int64_t c = batch.x.dims[1];
    const Element *dy = same_shape<Element>(args, 0, batch), *x = same_shape<Element>(args, 1, batch);
    const float *gamma = channels(args, 2, c), *beta = channels(args, 3, c);
    const float *means = channels(args, 4, c), *roots = channels(args, 5, c);
    bool relu = channels(args, 6, 3)[2] != 0;
    const Element* y = adds ? same_shape<Element>(args, 7, batch) : nullptr;
    int out = adds ? 8 : 7;
    Element* dx = same_shape<Element>(args, out, batch);
    float *dgamma = channels(args, out + 1, c), *dbeta = channels(args, out + 2, c);
    Element* dadded = adds ? same_shape<Element>(args, out + 3, batch) : nullptr;
    batch.each_group([&](int64_t group) {
        int64_t first = group * batch.together;
        Backward b;
        for (int lane = 0; lane < batch.together; ++lane) {
            int64_t channel = first + lane;
            b.mean[lane] = means[channel];
            b.scale[lane] = gamma[channel] * roots[channel];
            b.shift[lane] = beta[channel] - b.mean[lane] * b.scale[lane];
        }
        for (Vector* lanes : {&b.mean, &b.scale, &b.shift}) batch.repeat(*lanes);
        for (int64_t i = 0; i < batch.x.dims[0]; ++i) {
            int64_t at = batch.at(group) + i * batch.step();
            DISPATCH(sum_gradient<Element>)(
                dy + at, x + at, adds ? y + at : nullptr, relu, batch.plane, b, adds ? dadded + at : nullptr);
        }
        batch.sum_lanes(b.gradients);
        batch.sum_lanes(b.products);
        Vector by_x, constant;
        for (int lane = 0; lane < batch.together; ++lane) {
            float root = roots[first + lane];
            double product = b.products[lane] * root;
            dgamma[first + lane] = static_cast<float>(product);
            dbeta[first + lane] = static_cast<float>(b.gradients[lane]);
            by_x[lane] = static_cast<float>(-b.scale[lane] * root * product / batch.elements);
            constant[lane] = static_cast<float>(-b.scale[lane] * b.gradients[lane] / batch.elements);
        }
        batch.repeat(by_x);
        batch.repeat(constant);
        for (int64_t i = 0; i < batch.x.dims[0]; ++i) {
            int64_t at = batch.at(group) + i * batch.step();
            // If a tensor was added, its gradient is already behind the ReLU.
            DISPATCH(input_gradient<Element>)(
                adds ? dadded + at : dy + at, x + at, relu && !adds, batch.plane, b, by_x, constant, dx + at);
        }
    });
}

}  // namespace

// x, γ, β, moving mean, moving variance, (ε, share of the batch in the moving statistics, whether ReLU follows),
// [added] → y, mean, variance, r; the moving statistics are updated in place
OPERATOR(batch_norm) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("batch normalisation", 10, 11);
    args.type(0) == Type::bfloat16 ? normalise_batch<Bfloat16>(args) : normalise_batch<float>(args);
    return 0;
}

// x, γ, β, moving mean, moving variance, (ε, share, whether ReLU follows), [added] → y from the moving statistics
OPERATOR(batch_norm_inference) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("batch normalisation", 7, 8);
    args.type(0) == Type::bfloat16 ? normalise_by_moving<Bfloat16>(args) : normalise_by_moving<float>(args);
    return 0;
}

// dy, x, γ, β, mean, r, (ε, share, whether ReLU follows), [y, if a tensor was added] → dx, dγ, dβ, [dadded]
OPERATOR(batch_norm_gradient) {
    Args args{count, data, ranks, shapes, types};
    if (count != 12) args.must_have("the gradient of batch normalisation", 10, 10);
    args.type(0) == Type::bfloat16 ? differentiate<Bfloat16>(args) : differentiate<float>(args);
    return 0;
}
