// Loops of a dense layer: the product for few rows, the bias, and the gradient of a ReLU.
#include "vector_loops.h"

constexpr int64_t TILE = 4;  // rows and columns of y at a time: sixteen sums, each of sixteen lanes

// Sums over the lanes of 16 vectors: neighbouring lanes are added first, then pairs of neighbours, and so on.
template <int COUNT>
INLINE Vector lanes_summed(const Vector* first) {
    if constexpr (COUNT == 1) {
        return *first;
    } else {
        Vector even, odd;
        deinterleave(lanes_summed<COUNT / 2>(first), lanes_summed<COUNT / 2>(first + COUNT / 2), even, odd);
        return even + odd;
    }
}

// Elements `begin` to `end` of a row, where it ends, in the last lanes; zeros in the others.
INLINE Vector last(const float* row, int64_t begin, int64_t end) {
    if (end < LANES) {
        Vector few = {};
        for (int64_t i = 0; i < end; ++i) few[LANES - end + i] = row[i];
        return few;
    }
    Integers lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    Vector all = *reinterpret_cast<const Vector*>(row + end - LANES);
    return (Vector)((Integers)all & (lane >= static_cast<int32_t>(begin - end + LANES)));
}

// y = x·wᵀ for ROWS rows of x and COLUMNS rows of w, each of `in` elements; a row of y has `out`.
template <int64_t ROWS, int64_t COLUMNS>
INLINE void tile(const float* x, const float* w, int64_t in, int64_t out, float* y) {
    Vector sums[TILE * TILE] = {};
    auto add = [&](auto read) INLINED {
        Vector of_x[ROWS];
        for (int64_t row = 0; row < ROWS; ++row) of_x[row] = read(x + row * in);
        for (int64_t column = 0; column < COLUMNS; ++column) {
            Vector of_w = read(w + column * in);
            for (int64_t row = 0; row < ROWS; ++row) sums[row * TILE + column] += of_x[row] * of_w;
        }
    };
    int64_t i = 0;
    for (; i + LANES <= in; i += LANES)
        add([&](const float* row) INLINED { return *reinterpret_cast<const Vector*>(row + i); });
    if (i < in) add([&](const float* row) INLINED { return last(row, i, in); });
    Vector summed = lanes_summed<LANES>(sums);
    for (int64_t row = 0; row < ROWS; ++row)
        for (int64_t column = 0; column < COLUMNS; ++column) y[row * out + column] = summed[row * TILE + column];
}

template <int64_t COLUMNS>
INLINE void tiles(const float* x, int64_t rows, const float* w, int64_t in, int64_t out, float* y) {
    int64_t row = 0;
    for (; row + TILE <= rows; row += TILE) tile<TILE, COLUMNS>(x + row * in, w, in, out, y + row * out);
    for (; row < rows; ++row) tile<1, COLUMNS>(x + row * in, w, in, out, y + row * out);
}

// y = x·wᵀ for all rows of x and columns `begin` to `end` of y. An element of y does not depend on how y is tiled.
void product(
    const float* x, int64_t rows, const float* w, int64_t in, int64_t out, int64_t begin, int64_t end, float* y) {
    int64_t column = begin;
    for (; column + TILE <= end; column += TILE) tiles<TILE>(x, rows, w + column * in, in, out, y + column);
    for (; column < end; ++column) tiles<1>(x, rows, w + column * in, in, out, y + column);
}

// Adds the bias, if there is one, and then computes the ReLU, if there is one.
void add_bias(const float* bias, int64_t rows, int64_t count, bool relu, float* y) {
    for (int64_t row = 0; row < rows; ++row, y += count) {
        for (int64_t i = 0; i < count; ++i) {
            float value = bias ? y[i] + bias[i] : y[i];
            y[i] = relu && value <= 0 ? 0 : value;  // NaN stays NaN
        }
    }
}

void relu_gradient(const float* dy, const float* y, int64_t count, float* g) {
    for (int64_t i = 0; i < count; ++i) g[i] = y[i] <= 0 ? 0 : dy[i];
}

void add_rows(const float* g, int64_t rows, int64_t count, float* sum) {
    for (int64_t i = 0; i < count; ++i) sum[i] = 0;
    for (int64_t row = 0; row < rows; ++row, g += count)
        for (int64_t i = 0; i < count; ++i) sum[i] += g[i];
}
