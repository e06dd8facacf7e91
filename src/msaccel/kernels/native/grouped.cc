#include "grouped.h"

#include "scratch.h"
#include "thread_pool.h"
#include "vector.h"

using namespace msaccel;

namespace {

// Where a channel of dy and, seen from one tap of the kernel, one of x lie.
struct Pixels {
    const float *dy, *x;
    int64_t images, rows, columns;               // of y
    int64_t image_of_dy, image_of_x, row_of_x;  // distance to the next one
};

}  // namespace

#define LOOPS "grouped_loops.h"
#include "dispatch.h"

namespace msaccel {
namespace {

// An image with its padding, whose columns are laid out by their remainder modulo the stride, so that each tap of the
// kernel sees contiguous ones.
struct Padded {
    int64_t lines, length, line;  // length of the columns of one remainder, and of a line: of all
    std::vector<int64_t> taps;    // where the taps of a row of the kernel see the first column of y

    explicit Padded(const Problem& p) {
        int64_t stride = p.stride[1];
        lines = (p.y[2] - 1) * p.stride[0] + (p.weight[2] - 1) * p.dilation[0] + 1;
        length = p.y[3] + (p.weight[3] - 1) * p.dilation[1] / stride;
        line = length * stride;
        for (int64_t j = 0; j < p.weight[3]; ++j)
            taps.push_back(j * p.dilation[1] % stride * length + j * p.dilation[1] / stride);
    }

    void fill(const Problem& p, const float* image, float* padded) const {
        int64_t height = p.x[2], width = p.x[3], stride = p.stride[1];
        std::fill_n(padded, lines * line, 0.0f);
        for (int64_t i = 0; i < lines; ++i, padded += line) {
            int64_t row = i - p.before[0];
            if (row < 0 || row >= height) continue;
            const float* from = image + row * width - p.before[1];
            for (int64_t remainder = 0; remainder < stride; ++remainder) {
                int64_t begin = std::max<int64_t>(p.before[1] - remainder + stride - 1, 0) / stride;
                int64_t end = std::min(length, (width + p.before[1] - remainder + stride - 1) / stride);
                float* to = padded + remainder * length;
                if (stride == 1)
                    for (int64_t at = begin; at < end; ++at) to[at] = from[at];
                else
                    for (int64_t at = begin; at < end; ++at) to[at] = from[at * stride + remainder];
            }
        }
    }
};

// Pairs of lanes are added first, then pairs of pairs, and so on.
double sum_lanes(double* lanes) {
    for (int count = LANES / 2; count; count /= 2)
        for (int lane = 0; lane < count; ++lane) lanes[lane] += lanes[lane + count];
    return lanes[0];
}

}  // namespace

bool fits_grouped(Direction direction, const Problem& p) {
    if (direction != Direction::weight_gradient || p.groups == 1 || p.blocked_x || p.blocked_y ||
        p.products != Products::float32 || p.of_x != Type::float32 || p.weight[2] * p.weight[3] == 1)
        return false;
    int64_t in = p.weight[1];
    if (in == 1 && p.weight[0] == p.groups)  // oneDNN has fast code for the usual depthwise kernels
        return p.weight[3] > 3 || p.dilation != Sides{1, 1};
    return in <= 2 || (in <= 4 && p.y[3] >= LANES);
}

void grouped_weight_gradient(const Problem& p, const std::vector<void*>& tensors) {
    static thread_local Scratch scratch;
    p.validate();
    int64_t lanes = (p.y[3] + LANES - 1) / LANES * LANES;  // in whose time a row is computed
    int threads = threads_for(p.operations() * static_cast<double>(lanes) / static_cast<double>(p.y[3]));
    const Padded padded(p);
    const float *x = static_cast<float*>(tensors[0]), *dy = static_cast<float*>(tensors[1]);
    float *dweight = static_cast<float*>(tensors[2]), *dbias = p.bias ? static_cast<float*>(tensors[3]) : nullptr;
    int64_t in = p.weight[1], out = p.weight[0] / p.groups, height = p.weight[2], width = p.weight[3];
    int64_t of_padded = padded.lines * padded.line, of_kernels = out * in * height * width;
    int64_t of_x = p.x[2] * p.x[3], of_y = p.y[2] * p.y[3];
    // Sums are in float32 over LONGEST elements, or one row, then in float64.
    int64_t images = std::clamp<int64_t>(LONGEST / of_y, 1, p.x[0]);
    int64_t rows = std::clamp<int64_t>(LONGEST / p.y[3], 1, p.y[2]);
    int parts = static_cast<int>(std::min<int64_t>(threads, p.groups));
    float* copies = scratch.floats(parts * images * of_padded);
    thread_pool(threads)->parallel_for(parts, [&](int part, int of) {
        float* copy = copies + part * images * of_padded;
        std::vector<double> sums(of_kernels * LANES), of_bias(out);
        auto add = [&](const float* gradients, int64_t count, double* kernel) {
            for (int64_t first = 0; first < p.y[2]; first += rows)
                for (int64_t i = 0; i < height; ++i) {
                    const float* from = copy + (first * p.stride[0] + i * p.dilation[0]) * padded.line;
                    Pixels pixels = {gradients + first * p.y[3], from, count, std::min(rows, p.y[2] - first), p.y[3],
                                     p.y[1] * of_y, of_padded, p.stride[0] * padded.line};
                    DISPATCH(add_row_of_taps)(pixels, padded.taps.data(), width, kernel + i * width * LANES);
                }
        };
        for (int64_t group = p.groups * part / of; group < p.groups * (part + 1) / of; ++group) {
            std::fill(sums.begin(), sums.end(), 0.0);
            std::fill(of_bias.begin(), of_bias.end(), 0.0);
            for (int64_t n = 0; n < p.x[0]; n += images) {
                int64_t count = std::min(images, p.x[0] - n);
                const float* gradients = dy + (n * p.y[1] + group * out) * of_y;
                for (int64_t c = 0; c < in; ++c) {
                    for (int64_t image = 0; image < count; ++image)
                        padded.fill(p, x + ((n + image) * p.x[1] + group * in + c) * of_x, copy + image * of_padded);
                    for (int64_t o = 0; o < out; ++o)
                        add(gradients + o * of_y, count, sums.data() + (o * in + c) * height * width * LANES);
                }
                if (!dbias) continue;
                for (int64_t image = 0; image < count; ++image)
                    for (int64_t o = 0; o < out; ++o)
                        of_bias[o] += DISPATCH(total)(gradients + (image * p.y[1] + o) * of_y, of_y);
            }
            for (int64_t i = 0; i < of_kernels; ++i)
                dweight[group * of_kernels + i] = static_cast<float>(sum_lanes(sums.data() + i * LANES));
            for (int64_t o = 0; dbias && o < out; ++o) dbias[group * out + o] = static_cast<float>(of_bias[o]);
        }
    });
}

}  // namespace msaccel
