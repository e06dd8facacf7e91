#include "grouped.h"

#include "scratch.h"
#include "thread_pool.h"
#include "vector.h"

using namespace msaccel;

namespace {

// Where a channel of dy and, seen from one tap of the kernel, one of x lie, over images, rows and columns of y.
struct Pixels {
    const float *dy, *x;
    int64_t images, rows, columns;
    int64_t image_of_dy, row_of_dy, image_of_x, row_of_x;  // distance to the next one
};

}  // namespace

#define LOOPS "grouped_loops.h"
#include "dispatch.h"

namespace msaccel {
namespace {

// An image with its padding. A row holds all columns whose remainder modulo the stride is 0, then those of 1, and so on,
// so that each tap of the kernel sees contiguous ones.
struct Padded {
    int64_t rows, columns, row;  // columns of one remainder; length of a row: of all
    std::vector<int64_t> taps;   // where the taps of a row of the kernel see the first column of y

    explicit Padded(const Problem& p) {
        int64_t stride = p.stride[1];
        rows = (p.y[2] - 1) * p.stride[0] + (p.weight[2] - 1) * p.dilation[0] + 1;
        columns = p.y[3] + (p.weight[3] - 1) * p.dilation[1] / stride;
        row = columns * stride;
        for (int64_t j = 0; j < p.weight[3]; ++j)
            taps.push_back(j * p.dilation[1] % stride * columns + j * p.dilation[1] / stride);
    }

    int64_t size() const { return rows * row; }

    void fill(const Problem& p, const float* image, float* padded) const {
        int64_t height = p.x[2], width = p.x[3], stride = p.stride[1];
        std::fill_n(padded, size(), 0.0f);
        for (int64_t i = 0; i < rows; ++i, padded += row) {
            int64_t line = i - p.before[0];
            if (line < 0 || line >= height) continue;
            const float* from = image + line * width - p.before[1];
            for (int64_t remainder = 0; remainder < stride; ++remainder) {
                int64_t begin = (p.before[1] - remainder + stride - 1) / stride;
                int64_t end = std::min(columns, (width + p.before[1] - remainder + stride - 1) / stride);
                float* to = padded + remainder * columns;
                if (stride == 1)
                    for (int64_t at = begin; at < end; ++at) to[at] = from[at];
                else
                    for (int64_t at = begin; at < end; ++at) to[at] = from[at * stride + remainder];
            }
        }
    }
};

// Pairs of lanes are added at once: one after the other they would take as long as a small image.
double sum_lanes(double* lanes) {
    for (int count = LANES / 2; count; count /= 2)
        for (int lane = 0; lane < count; ++lane) lanes[lane] += lanes[lane + count];
    return lanes[0];
}

// A partial vector takes as long as a full one.
int threads_of(const Problem& p) {
    int64_t full = (p.y[3] + LANES - 1) / LANES * LANES;
    return threads_for(p.operations() * static_cast<double>(full) / static_cast<double>(p.y[3]));
}

}  // namespace

bool fits_grouped(const Problem& p) {
    int64_t in = p.weight[1], out = p.weight[0] / p.groups;
    if (p.groups < threads_of(p)) return false;
    if (in == 1 && out == 1)  // oneDNN has fast code for the usual depthwise kernels
        return p.weight[3] > 3 || p.dilation != Sides{1, 1};
    return out <= 4 && (in <= 2 || (in <= 4 && p.y[3] >= LANES));
}

void grouped_weight_gradient(const Problem& p, const std::vector<void*>& tensors) {
    static thread_local Scratch scratch;
    const Padded padded(p);
    const float *x = static_cast<float*>(tensors[0]), *dy = static_cast<float*>(tensors[1]);
    float *dweight = static_cast<float*>(tensors[2]), *dbias = p.bias ? static_cast<float*>(tensors[3]) : nullptr;
    const int64_t in = p.weight[1], out = p.weight[0] / p.groups, height = p.weight[2], width = p.weight[3];
    const int64_t kernels_size = out * in * height * width, x_size = p.x[2] * p.x[3], y_size = p.y[2] * p.y[3];
    // Sums are in float32 over LONGEST elements at most, then in float64.
    const int64_t images = std::clamp<int64_t>(LONGEST / y_size, 1, p.x[0]);
    const int64_t rows = std::clamp<int64_t>(LONGEST / p.y[3], 1, p.y[2]), columns = std::min(LONGEST, p.y[3]);
    int parts = static_cast<int>(std::min<int64_t>(threads_of(p), p.groups));
    float* copies = scratch.floats(parts * images * padded.size());
    thread_pool(parts)->parallel_for(parts, [&](int part, int of) {
        float* copy = copies + part * images * padded.size();
        std::vector<double> sums(kernels_size * LANES), bias_sums(out);
        // Adds to the sums of one kernel.
        auto add = [&](const float* gradients, int64_t count, double* kernel) {
            for (int64_t row = 0; row < p.y[2]; row += rows)
                for (int64_t column = 0; column < p.y[3]; column += columns)
                    for (int64_t i = 0; i < height; ++i) {
                        const float* from = copy + (row * p.stride[0] + i * p.dilation[0]) * padded.row + column;
                        Pixels pixels = {
                            gradients + row * p.y[3] + column, from, count, std::min(rows, p.y[2] - row),
                            std::min(columns, p.y[3] - column), p.y[1] * y_size, p.y[3], padded.size(),
                            p.stride[0] * padded.row};
                        DISPATCH(add_row_of_taps)(pixels, padded.taps.data(), width, kernel + i * width * LANES);
                    }
        };
        for (int64_t group = p.groups * part / of; group < p.groups * (part + 1) / of; ++group) {
            std::fill(sums.begin(), sums.end(), 0.0);
            std::fill(bias_sums.begin(), bias_sums.end(), 0.0);
            for (int64_t n = 0; n < p.x[0]; n += images) {
                int64_t count = std::min(images, p.x[0] - n);
                const float* gradients = dy + (n * p.y[1] + group * out) * y_size;
                for (int64_t c = 0; c < in; ++c) {
                    for (int64_t image = 0; image < count; ++image)
                        padded.fill(
                            p, x + ((n + image) * p.x[1] + group * in + c) * x_size, copy + image * padded.size());
                    for (int64_t o = 0; o < out; ++o)
                        add(gradients + o * y_size, count, sums.data() + (o * in + c) * height * width * LANES);
                }
                for (int64_t image = 0; dbias && image < count; ++image)
                    for (int64_t o = 0; o < out; ++o)
                        bias_sums[o] += DISPATCH(total)(gradients + (image * p.y[1] + o) * y_size, y_size);
            }
            for (int64_t i = 0; i < kernels_size; ++i)
                dweight[group * kernels_size + i] = static_cast<float>(sum_lanes(sums.data() + i * LANES));
            for (int64_t o = 0; dbias && o < out; ++o) dbias[group * out + o] = static_cast<float>(bias_sums[o]);
        }
    });
}

}  // namespace msaccel
