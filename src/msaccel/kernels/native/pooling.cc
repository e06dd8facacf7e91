// The largest of each window, with ReLU after it if that is wanted: relu(max(x)) = max(relu(x)), and of fewer numbers.
// The forward pass notes which tap of the window was the largest, so the gradient needs neither x nor y.
#include <algorithm>
#include <limits>

#include "call.h"
#include "team.h"
#include "vector.h"

using namespace msaccel;

namespace {

constexpr int64_t MOST_TAPS = 15;  // in a row; their number in a window must fit into a byte
constexpr uint8_t NONE = 255;  // no tap: the ReLU let nothing through
constexpr double OPERATIONS_PER_ELEMENT = 20;

struct Windows {
    int64_t channels;  // of a plane: 1, or 16 in the blocked layout
    int64_t planes, height, width, out_height, out_width, kernel, stride, padding;
    bool relu;
    int64_t first[MOST_TAPS], last[MOST_TAPS];  // outputs of a row whose window has tap j inside the picture

    Windows(const Picture& from, const Picture& to, const int32_t* numbers)
        : Windows(from.dims, to.dims, from.blocked ? BLOCK : 1, numbers) {
        if (from.blocked != to.blocked) throw Error("only one side of a maximum pooling is blocked");
    }

    Windows(const Dims& x, const Dims& y, int64_t together, const int32_t* numbers)
        : channels(together), planes(x[0] * x[1] / together), height(x[2]), width(x[3]), out_height(y[2]), out_width(y[3]), kernel(numbers[0]),
          stride(numbers[1]), padding(numbers[2]), relu(numbers[3]) {
        bool right = kernel > 0 && kernel <= MOST_TAPS && stride > 0 && padding >= 0 && 2 * padding <= kernel &&
                     x[0] == y[0] && x[1] == y[1] && out_height == out_size(height) && out_width == out_size(width);
        if (!right) throw Error("the shapes and settings of a maximum pooling do not belong together");
        for (int64_t j = 0; j < kernel; ++j) {
            first[j] = std::max<int64_t>(0, (padding - j + stride - 1) / stride);
            int64_t reach = width - 1 + padding - j;  // of the last window that begins inside
            last[j] = reach < 0 ? 0 : std::min(out_width, reach / stride + 1);
        }
    }

    // Numbers of a plane.
    int64_t in() const { return height * width * channels; }
    int64_t out() const { return out_height * out_width * channels; }

    int64_t out_size(int64_t size) const {
        return size + 2 * padding < kernel ? 0 : (size + 2 * padding - kernel) / stride + 1;
    }

    template <typename Plane>
    void each_plane(const Plane& plane) const {
        int threads = threads_for(OPERATIONS_PER_ELEMENT * static_cast<double>(planes * in()));
        int parts = static_cast<int>(std::min<int64_t>(threads, planes));
        team(threads)->parallel_for(parts, [&](int part, int of) {
            for (int64_t i = planes * part / of; i < planes * (part + 1) / of; ++i) plane(i);
        });
    }
};

// Keeps the larger of `best` and a tap, and the first of equals; what is not a number is the largest.
template <int stride>
void keep(
    const float* __restrict row, int64_t step, int tap, int64_t count, float* __restrict best,
    int32_t* __restrict which) {
    int64_t by = stride ? stride : step;
    for (int64_t i = 0; i < count; ++i) {
        float value = row[i * by];
        bool larger = (value > best[i]) | (value != value);
        best[i] = larger ? value : best[i];
        which[i] = larger ? tap : which[i];
    }
}

// The usual case by itself: halving, where rows are so short that the loops of `pool_plane` cost more than their work.
// Two rows of the picture, one of `best` and `which`; without `__restrict` the compiler makes no vectors of it.
void halve(
    const float* __restrict above, const float* __restrict below, int64_t count, float lowest, int32_t none,
    float* __restrict best, int32_t* __restrict which) {
    for (int64_t i = 0; i < count; ++i) {
        float taps[] = {above[2 * i], above[2 * i + 1], below[2 * i], below[2 * i + 1]};
        float value = lowest;
        int32_t from = none;
        for (int32_t tap = 0; tap < 4; ++tap) {
            bool larger = (taps[tap] > value) | (taps[tap] != taps[tap]);
            value = larger ? taps[tap] : value;
            from = larger ? tap : from;
        }
        best[i] = value;
        which[i] = from;
    }
}

void halve_plane(const Windows& w, const float* x, float* y, uint8_t* which, std::vector<int32_t>& taps) {
    float lowest = w.relu ? 0 : -std::numeric_limits<float>::infinity();
    int64_t count = w.out_height * w.out_width;
    for (int64_t row = 0, to = 0; row < w.out_height; ++row, x += 2 * w.width, to += w.out_width)
        halve(x, x + w.width, w.out_width, lowest, w.relu ? NONE : 0, y + to, taps.data() + to);
    for (int64_t i = 0; i < count; ++i) which[i] = static_cast<uint8_t>(taps[i]);
}

void pool_plane(const Windows& w, const float* x, float* y, uint8_t* which, std::vector<int32_t>& taps) {
    auto keep_tap = w.stride == 1 ? keep<1> : w.stride == 2 ? keep<2> : keep<0>;
    for (int64_t row = 0; row < w.out_height; ++row, y += w.out_width, which += w.out_width) {
        std::fill(y, y + w.out_width, -std::numeric_limits<float>::infinity());
        std::fill(taps.begin(), taps.end(), 0);
        for (int64_t i = 0; i < w.kernel; ++i) {
            int64_t from = row * w.stride + i - w.padding;
            if (from < 0 || from >= w.height) continue;
            for (int64_t j = 0; j < w.kernel; ++j) {
                int64_t first = w.first[j];
                const float* begin = x + from * w.width + first * w.stride + j - w.padding;
                int tap = static_cast<int>(i * w.kernel + j);
                keep_tap(begin, w.stride, tap, w.last[j] - first, y + first, taps.data() + first);
            }
        }
        for (int64_t i = 0; i < w.out_width; ++i) {
            bool stopped = w.relu & (y[i] <= 0);
            y[i] = stopped ? 0 : y[i];
            which[i] = static_cast<uint8_t>(stopped ? NONE : taps[i]);
        }
    }
}

void pool_gradient_plane(const Windows& w, const float* dy, const uint8_t* which, float* dx) {
    std::fill(dx, dx + w.in(), 0.0f);
    int64_t offsets[NONE];
    for (int64_t tap = 0; tap < w.kernel * w.kernel; ++tap)
        offsets[tap] = (tap / w.kernel - w.padding) * w.width + tap % w.kernel - w.padding;
    for (int64_t row = 0; row < w.out_height; ++row)
        for (int64_t i = 0; i < w.out_width; ++i, ++dy, ++which)
            if (*which != NONE) dx[row * w.stride * w.width + i * w.stride + offsets[*which]] += *dy;
}

// Sixteen channels at a time: a tap is a vector.
VECTORISED void pool_blocks(const Windows& w, const float* x, float* y, uint8_t* which) {
    for (int64_t row = 0; row < w.out_height; ++row) {
        for (int64_t column = 0; column < w.out_width; ++column, y += LANES, which += LANES) {
            Vector best = Vector{} - std::numeric_limits<float>::infinity(), value;
            Vector from = {};  // numbers of taps, as floats: one mask serves both
            if (w.relu) best = Vector{}, from = Vector{} + static_cast<float>(NONE);
            for (int64_t i = 0; i < w.kernel; ++i) {
                int64_t above = row * w.stride + i - w.padding;
                if (above < 0 || above >= w.height) continue;
                for (int64_t j = 0; j < w.kernel; ++j) {
                    int64_t left = column * w.stride + j - w.padding;
                    if (left < 0 || left >= w.width) continue;
                    load(x + (above * w.width + left) * LANES, LANES, 0, value);
                    auto larger = (value > best) | (value != value);
                    best = larger ? value : best;
                    from = larger ? Vector{} + static_cast<float>(i * w.kernel + j) : from;
                }
            }
            store(best, LANES, y);
            for (int lane = 0; lane < LANES; ++lane) which[lane] = static_cast<uint8_t>(from[lane]);
        }
    }
}

void pool_gradient_blocks(const Windows& w, const float* dy, const uint8_t* which, float* dx) {
    std::fill(dx, dx + w.in(), 0.0f);
    int64_t offsets[NONE];
    for (int64_t tap = 0; tap < w.kernel * w.kernel; ++tap)
        offsets[tap] = ((tap / w.kernel - w.padding) * w.width + tap % w.kernel - w.padding) * LANES;
    for (int64_t row = 0; row < w.out_height; ++row)
        for (int64_t i = 0; i < w.out_width; ++i)
            for (int64_t lane = 0; lane < LANES; ++lane, ++dy, ++which)
                if (*which != NONE) dx[(row * w.width + i) * w.stride * LANES + offsets[*which] + lane] += *dy;
}

void must_be_taps(const Call& call, int of, int y) {
    bool right = call.ranks[of] == call.ranks[y] && !std::strcmp(call.types[of], "uint8");
    for (int i = 0; right && i < call.ranks[y]; ++i) right = call.shapes[of][i] == call.shapes[y][i];
    if (!right) throw Error("the taps are wanted as a uint8 tensor of the shape of y");
}

}  // namespace

// x, (kernel, stride, padding, relu) → y, taps
EXPORTED int msaccel_max_pool(int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("maximum pooling", 4, 4);
    Windows windows(call.picture(0), call.picture(2), call.numbers(1, 4));
    must_be_taps(call, 3, 2);
    bool halves = windows.kernel == 2 && windows.stride == 2 && windows.padding == 0;
    windows.each_plane([&](int64_t plane) {
        const float* x = static_cast<float*>(data[0]) + plane * windows.in();
        float* to = static_cast<float*>(data[2]) + plane * windows.out();
        uint8_t* which = static_cast<uint8_t*>(data[3]) + plane * windows.out();
        if (windows.channels > 1) return pool_blocks(windows, x, to, which);
        static thread_local std::vector<int32_t> taps;
        taps.resize(halves ? windows.out() : windows.out_width);
        (halves ? halve_plane : pool_plane)(windows, x, to, which, taps);
    });
    return 0;
}

// dy, taps, x (for its shape), (kernel, stride, padding, relu) → dx
EXPORTED int msaccel_max_pool_gradient(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("the gradient of maximum pooling", 5, 5);
    Windows windows(call.picture(4), call.picture(0), call.numbers(3, 4));
    must_be_taps(call, 1, 0);
    auto gradient = windows.channels > 1 ? pool_gradient_blocks : pool_gradient_plane;
    windows.each_plane([&](int64_t plane) {
        gradient(
            windows, static_cast<float*>(data[0]) + plane * windows.out(),
            static_cast<uint8_t*>(data[1]) + plane * windows.out(),
            static_cast<float*>(data[4]) + plane * windows.in());
    });
    return 0;
}
