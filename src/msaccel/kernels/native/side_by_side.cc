#include "side_by_side.h"

#include <algorithm>
#include <cstring>

#include "channel_rows.h"
#include "scratch.h"
#include "thread_pool.h"

namespace msaccel {
namespace {

constexpr int64_t MOST_COLUMNS = 8;    // of an image of y
constexpr int64_t MOST_TOGETHER = 128;  // columns of images of y that lie side by side

// Images (n, c, h, w) of which `together` lie side by side: (n / together, h, together, pitch, c) in memory. The
// columns behind each image are zeros.
struct Wide {
    const Dims& dims;
    int64_t together, pitch;
    Type type;

    Dims images() const { return {dims[0] / together, dims[1], dims[2], together * pitch}; }
    size_t bytes(int64_t columns) const { return columns * dims[1] * size_of(type); }
    size_t bytes() const { return bytes(dims[0] * dims[2] * pitch); }

    void clear_gaps(char* wide, int threads) const {
        thread_pool(threads)->parallel_for(threads, [&](int part, int of) {
            int64_t rows = dims[0] * dims[2];
            for (int64_t row = rows * part / of; row < rows * (part + 1) / of; ++row)
                std::memset(wide + bytes(row * pitch + dims[3]), 0, bytes(pitch - dims[3]));
        });
    }

    // From images in a layout and a type of their own, or back.
    void copy(bool back, Order order, Type outer, void* images, char* wide, int threads) const {
        Images group{{together, dims[1], dims[2], dims[3]}, order, outer};
        Rows rows{type, pitch * dims[1], together * pitch * dims[1], dims[1]};
        int64_t of_image = dims[1] * dims[2] * dims[3] * size_of(outer);
        for (int64_t n = 0; n < dims[0]; n += together) {
            char *one = static_cast<char*>(images) + n * of_image, *other = wide + bytes(n * dims[2] * pitch);
            copy_rows(back, group, one, {1, 1}, rows, other, threads);
        }
    }
};

// How many images lie side by side: a divisor of their number.
int64_t together(int64_t images, int64_t pitch) {
    int64_t most = std::max<int64_t>(MOST_TOGETHER / pitch, 1);
    while (images % most) --most;
    return most;
}

}  // namespace

bool fits_side_by_side(const Problem& p) {
    return p.products == Products::bfloat16 && multiplies_tiles() && p.of_x != Type::float16 &&
           p.groups == 1 && p.x[0] > 1 && p.y[3] <= MOST_COLUMNS && p.before[1] < reach(p, 1);
}

void convolve_side_by_side(
    Direction direction, const Problem& p, const std::vector<void*>& tensors, int threads) {
    static thread_local Scratch scratch;
    p.validate();
    // Between two images lie as many columns as the kernel sees beside one of them.
    int64_t right = (p.y[3] - 1) * p.stride[1] + reach(p, 1) - p.before[1] - p.x[3];
    int64_t columns = p.x[3] + std::max(p.before[1], right);
    int64_t pitch = std::max(p.y[3], (columns + p.stride[1] - 1) / p.stride[1]), each = together(p.x[0], pitch);
    bool into_x = direction == Direction::input_gradient, into_y = direction == Direction::forward;
    Wide x{p.x, each, pitch * p.stride[1], into_x ? p.of_x : Type::bfloat16};
    Wide y{p.y, each, pitch, into_y ? p.of_y : Type::bfloat16};
    char *wide_x = scratch.at_least(aligned(x.bytes()) + y.bytes()), *wide_y = wide_x + aligned(x.bytes());

    Problem wide = p;
    wide.x = x.images(), wide.y = y.images();
    wide.of_x = x.type, wide.of_y = y.type;
    wide.order_x = wide.order_y = Order::channels_last;
    wide.after[1] = std::max<int64_t>(reach(p, 1) - p.stride[1] - p.before[1], 0);

    size_t last = tensors.size() - 1, at_x = into_x ? last : 0, at_y = into_y ? last : into_x ? 0 : 1;
    std::vector<void*> replaced = tensors;
    replaced[at_x] = wide_x;
    replaced[at_y] = wide_y;
    if (!into_x) {
        x.clear_gaps(wide_x, threads);
        x.copy(false, p.order_x, p.of_x, tensors[at_x], wide_x, threads);
    }
    if (!into_y) {
        y.clear_gaps(wide_y, threads);
        y.copy(false, p.order_y, p.of_y, tensors[at_y], wide_y, threads);
    }
    convolve_by_onednn(direction, wide, replaced);
    if (into_x) x.copy(true, p.order_x, p.of_x, tensors[at_x], wide_x, threads);
    if (into_y) y.copy(true, p.order_y, p.of_y, tensors[at_y], wide_y, threads);
}

}  // namespace msaccel
