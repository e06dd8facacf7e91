#include "depthwise.h"

#include "scratch.h"
#include "thread_pool.h"
#include "vector.h"

using namespace msaccel;

namespace {

// Images of dy, or rows of one, and those of x as the first tap of a row of the kernel sees them: a vector of channels
// for each pixel.
struct Pixels {
    const float *dy, *x;
    int64_t images, rows, columns;             // of dy
    int64_t image_of_x, row_of_x, column_of_x;  // distance to the next one that the tap sees, in floats
    int64_t tap;                                // distance to what the next tap sees
};

}  // namespace

#define LOOPS "depthwise_loops.h"
#include "dispatch.h"

namespace msaccel {
namespace {

constexpr int64_t CHAIN = LONGEST / LANES;  // elements of a lane that are summed in float32

// Where an image lies in one with its padding.
struct Padded {
    int64_t rows, columns;

    explicit Padded(const Problem& p)
        : rows((p.y[2] - 1) * p.stride[0] + (p.weight[2] - 1) * p.dilation[0] + 1),
          columns((p.y[3] - 1) * p.stride[1] + (p.weight[3] - 1) * p.dilation[1] + 1) {}

    int64_t size() const { return rows * columns * LANES; }

    // One channel of an image, into one lane. The padding is left alone.
    void fill(const Problem& p, const float* channel, float* lane) const {
        for (int64_t row = 0; row < p.x[2] && row + p.before[0] < rows; ++row) {
            const float* from = channel + row * p.x[3];
            float* to = lane + ((row + p.before[0]) * columns + p.before[1]) * LANES;
            int64_t count = std::min(p.x[3], columns - p.before[1]);
            for (int64_t column = 0; column < count; ++column) to[column * LANES] = from[column];
        }
    }
};

}  // namespace

bool fits_depthwise(const Problem& p) {
    if (p.weight[1] != 1 || p.weight[0] != p.groups || p.groups < LANES) return false;
    // oneDNN has fast code for the usual kernels, unless the image is too low.
    if (p.weight[3] <= 3 && p.dilation == Sides{1, 1} && p.x[2] >= p.weight[2] + p.stride[0] - 1) return false;
    return p.y[3] <= (p.weight[3] > 5 ? 24 : 16) && p.y[2] * p.y[3] <= LONGEST;
}

void depthwise_weight_gradient(const Problem& p, const std::vector<void*>& tensors) {
    static thread_local Scratch scratch;
    const Padded padded(p);
    const float *x = static_cast<float*>(tensors[0]), *dy = static_cast<float*>(tensors[1]);
    float *dweight = static_cast<float*>(tensors[2]), *dbias = p.bias ? static_cast<float*>(tensors[3]) : nullptr;
    const int64_t height = p.weight[2], width = p.weight[3], x_size = p.x[2] * p.x[3], y_size = p.y[2] * p.y[3];
    const int64_t blocks = (p.groups + LANES - 1) / LANES;
    // Summed in float32: some images, or some rows of one.
    const int64_t images = std::clamp<int64_t>(CHAIN / y_size, 1, p.x[0]);
    const int64_t rows = std::min(CHAIN / p.y[3], p.y[2]);
    int parts = static_cast<int>(std::min<int64_t>(threads_for(p.operations()), blocks));
    const int64_t copy = images * (padded.size() + y_size * LANES);
    float* copies = scratch.floats(parts * copy);
    thread_pool(parts)->parallel_for(parts, [&](int part, int of) {
        float *of_x = copies + part * copy, *of_dy = of_x + images * padded.size();
        std::fill_n(of_x, copy, 0.0f);
        std::vector<double> sums(height * width * LANES), bias_sums(LANES);
        for (int64_t block = blocks * part / of; block < blocks * (part + 1) / of; ++block) {
            int64_t first = block * LANES, lanes = std::min<int64_t>(LANES, p.groups - first);
            std::fill(sums.begin(), sums.end(), 0.0);
            std::fill(bias_sums.begin(), bias_sums.end(), 0.0);
            for (int64_t n = 0; n < p.x[0]; n += images) {
                int64_t count = std::min(images, p.x[0] - n);
                for (int64_t image = 0; image < count; ++image)
                    for (int64_t lane = 0; lane < lanes; ++lane) {
                        int64_t channel = (n + image) * p.groups + first + lane;
                        padded.fill(p, x + channel * x_size, of_x + image * padded.size() + lane);
                        for (int64_t pixel = 0; pixel < y_size; ++pixel)
                            of_dy[(image * y_size + pixel) * LANES + lane] = dy[channel * y_size + pixel];
                    }
                int64_t line = padded.columns * LANES;
                for (int64_t row = 0; row < p.y[2]; row += rows) {
                    int64_t some = std::min(rows, p.y[2] - row);
                    const float* gradients = of_dy + row * p.y[3] * LANES;
                    for (int64_t i = 0; i < height; ++i) {
                        const float* from = of_x + (row * p.stride[0] + i * p.dilation[0]) * line;
                        Pixels pixels = {
                            gradients, from, count, some, p.y[3], padded.size(), p.stride[0] * line,
                            p.stride[1] * LANES, p.dilation[1] * LANES};
                        DISPATCH(add_row_of_taps)(pixels, width, sums.data() + i * width * LANES);
                    }
                    if (dbias) DISPATCH(add_pixels)(gradients, count * some * p.y[3], bias_sums.data());
                }
            }
            for (int64_t lane = 0; lane < lanes; ++lane) {
                float* kernel = dweight + (first + lane) * height * width;
                for (int64_t i = 0; i < height * width; ++i) kernel[i] = static_cast<float>(sums[i * LANES + lane]);
                if (dbias) dbias[first + lane] = static_cast<float>(bias_sums[lane]);
            }
        }
    });
}

}  // namespace msaccel
