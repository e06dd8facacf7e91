#include "im2col.h"

#include "scratch.h"
#include "thread_pool.h"
#include "vector.h"

namespace msaccel {
namespace {

constexpr int64_t MOST_FLOATS = 1 << 15;  // of a matrix of patches, so that it stays in the second-level cache

// The patches that the kernel sees from the pixels of `rows` rows of y, from row `first` on: a matrix (kh · kw,
// rows · ow).
void gather(const Problem& p, const float* image, int64_t first, int64_t rows, float* matrix) {
    int64_t height = p.x[2], width = p.x[3], out_width = p.y[3], step = p.stride[1];
    for (int64_t i = 0; i < p.weight[2]; ++i)
        for (int64_t j = 0; j < p.weight[3]; ++j) {
            // Pixels `begin` to `end` of a row of y see pixels of x, the others zeros.
            int64_t left = j * p.dilation[1] - p.before[1];
            int64_t begin = left < 0 ? std::min((step - 1 - left) / step, out_width) : 0;
            int64_t end = left < width ? std::min((width - left + step - 1) / step, out_width) : 0;
            for (int64_t row = first; row < first + rows; ++row, matrix += out_width) {
                int64_t line = row * p.stride[0] + i * p.dilation[0] - p.before[0];
                if (line < 0 || line >= height || begin >= end) {
                    std::fill_n(matrix, out_width, 0.0f);
                    continue;
                }
                const float* from = image + line * width + left;
                std::fill_n(matrix, begin, 0.0f);
                if (step == 1)
                    std::copy(from + begin, from + end, matrix + begin);
                else
                    for (int64_t at = begin; at < end; ++at) matrix[at] = from[at * step];
                std::fill(matrix + end, matrix + out_width, 0.0f);
            }
        }
}

// c (m, n) = a·b + beta·c on this thread alone; b (k, n) may be transposed. Rows begin at every lda, ldb or ldc floats.
void multiply(
    bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
    float beta, float* c, int64_t ldc) {
    check(
        dnnl_threadpool_interop_sgemm(
            'N', transpose_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc, nullptr),
        "product of a convolution");
}

}  // namespace

bool fits_im2col(Direction direction, const Problem& p) {
    bool faster = direction == Direction::weight_gradient ||
                  (direction == Direction::forward && p.stride == Sides{1, 1});
    return generation() == 1 && faster && p.x[1] == 1 && !p.bias && p.order_y == Order::channels_first &&
           p.products == Products::float32 && p.of_x == Type::float32;
}

void im2col(Direction direction, const Problem& p, const std::vector<void*>& tensors, int threads) {
    static thread_local Scratch scratch;
    p.validate();
    int64_t images = p.x[0], out = p.y[1], taps = p.weight[2] * p.weight[3], plane = p.y[2] * p.y[3];
    int64_t rows = std::clamp<int64_t>(MOST_FLOATS / (taps * p.y[3]), 1, p.y[2]);
    int64_t of_matrix = taps * rows * p.y[3], of_sums = out * taps;
    auto floats = [&](int i) { return static_cast<float*>(tensors[i]); };
    float *matrices = scratch.floats(threads * (of_matrix + of_sums)), *sums = matrices + threads * of_matrix;
    std::fill_n(sums, threads * of_sums, 0.0f);
    thread_pool(threads)->parallel_for(threads, [&](int part, int of) {
        Concurrency alone(1);
        float *matrix = matrices + part * of_matrix, *sum = sums + part * of_sums;
        for (int64_t n = images * part / of; n < images * (part + 1) / of; ++n)
            for (int64_t first = 0; first < p.y[2]; first += rows) {
                int64_t count = std::min(rows, p.y[2] - first), pixels = count * p.y[3];
                gather(p, floats(0) + n * p.x[2] * p.x[3], first, count, matrix);
                int64_t at = n * out * plane + first * p.y[3];
                if (direction == Direction::forward)
                    multiply(false, out, pixels, taps, floats(1), taps, matrix, pixels, 0, floats(2) + at, plane);
                else
                    multiply(true, out, taps, pixels, floats(1) + at, plane, matrix, pixels, 1, sum, taps);
            }
    });
    if (direction == Direction::forward) return;
    std::copy_n(sums, of_sums, floats(2));
    for (int part = 1; part < threads; ++part)
        for (int64_t i = 0; i < of_sums; ++i) floats(2)[i] += sums[part * of_sums + i];
}

}  // namespace msaccel
