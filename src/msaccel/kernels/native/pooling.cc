// Max pooling, optionally followed by a ReLU: relu(max(x)) = max(relu(x)), on fewer elements. The forward pass records
// which tap of each window was the maximum, so the gradient needs neither x nor y.
#include <algorithm>
#include <limits>

#include "args.h"
#include "thread_pool.h"
#include "vector.h"

using namespace msaccel;

namespace {

constexpr int64_t MOST_TAPS = 15;  // in a row of the window; the index of a tap in the window must fit into a byte
// As padding: as much as makes an output of every `stride` inputs, half of it (rounded down) before the image.
constexpr int SAME = -1;
constexpr uint8_t NONE = 255;  // no tap: the ReLU's output is 0
constexpr double OPERATIONS_PER_ELEMENT = 20;

struct Windows {
    int64_t channels;  // per plane: 1, or a block of them
    int64_t planes, height, width, out_height, out_width, kernel, stride;
    int64_t top, left;  // padding before the image
    bool relu;

    Windows(const Image& from, const Image& to, const int32_t* numbers)
        : Windows(from.dims, to.dims, from.together(), numbers) {
        if (from.order != to.order) throw Error("only one side of a maximum pooling is blocked");
    }

    Windows(const Dims& x, const Dims& y, int64_t together, const int32_t* numbers)
        : channels(together), planes(x[0] * x[1] / together), height(x[2]), width(x[3]), out_height(y[2]),
          out_width(y[3]), kernel(numbers[0]), stride(numbers[1]), top(before(height, numbers[2])),
          left(before(width, numbers[2])), relu(numbers[3]) {
        int padding = numbers[2];
        bool right = kernel > 0 && kernel <= MOST_TAPS && stride > 0 && padding >= SAME && 2 * padding <= kernel &&
                     x[0] == y[0] && x[1] == y[1] && out_height == out_size(height, padding) &&
                     out_width == out_size(width, padding);
        if (!right) throw Error("the shapes and settings of a maximum pooling do not belong together");
    }

    // Whether this is 2 × 2 pooling with stride 2 that covers every row and column, the usual case.
    bool halve() const {
        return channels == 1 && kernel == 2 && stride == 2 && !top && !left && width % 2 == 0 && height % 2 == 0;
    }

    // Elements of a plane.
    int64_t in() const { return height * width * channels; }
    int64_t out() const { return out_height * out_width * channels; }

    // Elements of a row that vectors of windows read: those of the image between padding, and more behind them.
    int64_t framed_width() const { return (out_width + LANES - 1) / LANES * LANES * stride + kernel; }

    int64_t out_size(int64_t size, int padding) const {
        if (padding == SAME) return (size + stride - 1) / stride;
        return size + 2 * padding < kernel ? 0 : (size + 2 * padding - kernel) / stride + 1;
    }

    // Padding before a side of the image.
    int64_t before(int64_t size, int padding) const {
        if (padding != SAME) return padding;
        return stride > 0 ? std::max<int64_t>(0, (out_size(size, SAME) - 1) * stride + kernel - size) / 2 : 0;
    }

    // Calls work(first plane, end of the planes) for each thread's part.
    template <typename Work>
    void each_part(const Work& work) const {
        int threads = threads_for(OPERATIONS_PER_ELEMENT * static_cast<double>(planes * in()));
        int parts = static_cast<int>(std::min<int64_t>(threads, planes));
        thread_pool(threads)->parallel_for(
            parts, [&](int part, int of) { work(planes * part / of, planes * (part + 1) / of); });
    }
};

}  // namespace

#define LOOPS "pooling_loops.h"
#include "dispatch.h"

namespace {

void pool_gradient_plane(const Windows& w, const float* dy, const uint8_t* which, float* dx) {
    std::fill(dx, dx + w.in(), 0.0f);
    int64_t offsets[NONE];
    for (int64_t tap = 0; tap < w.kernel * w.kernel; ++tap)
        offsets[tap] = (tap / w.kernel - w.top) * w.width + tap % w.kernel - w.left;
    for (int64_t row = 0; row < w.out_height; ++row)
        for (int64_t i = 0; i < w.out_width; ++i, ++dy, ++which)
            if (*which != NONE) dx[row * w.stride * w.width + i * w.stride + offsets[*which]] += *dy;
}

void pool_gradient_blocks(const Windows& w, const float* dy, const uint8_t* which, float* dx) {
    std::fill(dx, dx + w.in(), 0.0f);
    int64_t offsets[NONE];
    for (int64_t tap = 0; tap < w.kernel * w.kernel; ++tap)
        offsets[tap] = ((tap / w.kernel - w.top) * w.width + tap % w.kernel - w.left) * w.channels;
    for (int64_t row = 0; row < w.out_height; ++row)
        for (int64_t i = 0; i < w.out_width; ++i)
            for (int64_t channel = 0; channel < w.channels; ++channel, ++dy, ++which)
                if (*which != NONE) dx[(row * w.width + i) * w.stride * w.channels + offsets[*which] + channel] += *dy;
}

void must_be_taps(const Args& args, int of, int y) {
    bool right = args.ranks[of] == args.ranks[y] && !std::strcmp(args.types[of], "uint8");
    for (int i = 0; right && i < args.ranks[y]; ++i) right = args.shapes[of][i] == args.shapes[y][i];
    if (!right) throw Error("the taps are wanted as a uint8 tensor of the shape of y");
}

}  // namespace

// x, (kernel, stride, padding or SAME, relu) → y, taps
OPERATOR(max_pool) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("maximum pooling", 4, 4);
    Windows windows(args.image(0), args.image(2), args.numbers(1, 4));
    must_be_taps(args, 3, 2);
    windows.each_part([&](int64_t plane, int64_t end) {
        const float* x = args.floats(0) + plane * windows.in();
        float* to = args.floats(2) + plane * windows.out();
        uint8_t* which = static_cast<uint8_t*>(data[3]) + plane * windows.out();
        if (windows.halve()) return DISPATCH(halve)(windows, (end - plane) * windows.out_height, x, to, which);
        bool blocks = windows.channels > 1;
        std::vector<float> framed(
            blocks ? 0 : windows.height * windows.framed_width(), -std::numeric_limits<float>::infinity());
        for (; plane < end; ++plane, x += windows.in(), to += windows.out(), which += windows.out())
            blocks ? DISPATCH(pool_blocks)(windows, x, to, which)
                   : DISPATCH(pool_plane)(windows, x, framed.data(), to, which);
    });
    return 0;
}

// dy, taps, x (for its shape), (kernel, stride, padding or SAME, relu) → dx
OPERATOR(max_pool_gradient) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the gradient of maximum pooling", 5, 5);
    Windows windows(args.image(4), args.image(0), args.numbers(3, 4));
    must_be_taps(args, 1, 0);
    windows.each_part([&](int64_t plane, int64_t end) {
        const float* dy = args.floats(0) + plane * windows.out();
        const uint8_t* which = static_cast<uint8_t*>(data[1]) + plane * windows.out();
        float* dx = args.floats(4) + plane * windows.in();
        if (windows.halve())
            return DISPATCH(halve_gradient)(windows, (end - plane) * windows.out_height, dy, which, dx);
        for (; plane < end; ++plane, dy += windows.out(), which += windows.out(), dx += windows.in())
            (windows.channels > 1 ? pool_gradient_blocks : pool_gradient_plane)(windows, dy, which, dx);
    });
    return 0;
}
