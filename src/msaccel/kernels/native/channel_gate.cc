// The two ends of a squeeze-and-excitation layer (arXiv 1709.01507): the mean of each channel of images, and images whose
// channels are multiplied by a number each.
#include "args.h"
#include "thread_pool.h"
#include "vector.h"

using namespace msaccel;

#define LOOPS "channel_gate_loops.h"
#include "dispatch.h"

namespace {

constexpr double OPERATIONS_PER_ELEMENT = 24;  // in whose time memory is read and written

// Images (n, c, h, w), seen as n · c planes.
struct Planes {
    Dims one;  // the shape of a number for each: (n, c, 1, 1)
    int64_t count, size;

    explicit Planes(const Dims& images)
        : one{images[0], images[1], 1, 1}, count(images[0] * images[1]), size(images[2] * images[3]) {}

    // Calls work(plane) for all of them.
    template <typename Work>
    void each(const Work& work) const {
        int threads = threads_for(OPERATIONS_PER_ELEMENT * static_cast<double>(count * size));
        threads = static_cast<int>(std::min<int64_t>(threads, count));
        thread_pool(threads)->parallel_for(threads, [&](int part, int of) {
            for (int64_t i = count * part / of; i < count * (part + 1) / of; ++i) work(i);
        });
    }
};

}  // namespace

// x → the means
OPERATOR(channel_mean) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("a channel's mean", 2, 2);
    Planes planes(args.dims(0, 4));
    float *x = args.floats(0), *mean = args.floats(1, planes.one, "a channel's mean");
    planes.each([&](int64_t i) {
        double sum = DISPATCH(total)(x + i * planes.size, planes.size);
        mean[i] = static_cast<float>(sum / static_cast<double>(planes.size));
    });
    return 0;
}

// The gradient of the means, x → dx
OPERATOR(channel_mean_gradient) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the gradient of a channel's mean", 3, 3);
    Dims images = args.dims(1, 4);
    Planes planes(images);
    const char* name = "the gradient of a channel's mean";
    float *dmean = args.floats(0, planes.one, name), *dx = args.floats(2, images, name);
    planes.each([&](int64_t i) {
        std::fill_n(dx + i * planes.size, planes.size, dmean[i] / static_cast<float>(planes.size));
    });
    return 0;
}

// x, the channels' factors → y
OPERATOR(channel_scale) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("channels' factors", 3, 3);
    Dims images = args.dims(0, 4);
    Planes planes(images);
    const char* name = "channels' factors";
    float *x = args.floats(0), *factor = args.floats(1, planes.one, name), *y = args.floats(2, images, name);
    planes.each([&](int64_t i) {
        DISPATCH(scale)(x + i * planes.size, planes.size, factor[i], y + i * planes.size);
    });
    return 0;
}

// dy, x, the factors → dx, dfactors
OPERATOR(channel_scale_gradient) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the gradient of channels' factors", 5, 5);
    Dims images = args.dims(0, 4);
    Planes planes(images);
    const char* name = "the gradient of channels' factors";
    float *dy = args.floats(0), *x = args.floats(1, images, name), *factor = args.floats(2, planes.one, name);
    float *dx = args.floats(3, images, name), *dfactor = args.floats(4, planes.one, name);
    planes.each([&](int64_t i) {
        int64_t at = i * planes.size;
        DISPATCH(scale)(dy + at, planes.size, factor[i], dx + at);
        dfactor[i] = static_cast<float>(DISPATCH(total_of_products)(dy + at, x + at, planes.size));
    });
    return 0;
}
