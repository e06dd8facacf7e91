// Products and the softmax of attention, within one head.
#include "vector_loops.h"
#include "exponential.h"

constexpr int64_t TILE = WIDTH == 16 ? 8 : 4;  // rows of c at a time

template <int64_t ROWS, int64_t VECTORS>
INLINE void tile(const Factor& a, const Panel& b, int64_t k, bool add, const Panel& c) {
    Floats sums[ROWS][VECTORS] = {};
    auto vector = [](const Panel& of, int64_t row, int64_t i) INLINED -> Floats& {
        return *reinterpret_cast<Floats*>(of.at + row * of.length + i * WIDTH);
    };
    if (add)
        for (int64_t row = 0; row < ROWS; ++row)
            for (int64_t i = 0; i < VECTORS; ++i) sums[row][i] = vector(c, row, i);
    for (int64_t step = 0; step < k; ++step) {
        Floats of_b[VECTORS];
        for (int64_t i = 0; i < VECTORS; ++i) of_b[i] = vector(b, step, i);
        for (int64_t row = 0; row < ROWS; ++row) {
            float of_a = a.at[row * a.row + step * a.column];
            for (int64_t i = 0; i < VECTORS; ++i) sums[row][i] += of_a * of_b[i];
        }
    }
    for (int64_t row = 0; row < ROWS; ++row)
        for (int64_t i = 0; i < VECTORS; ++i) vector(c, row, i) = sums[row][i];
}

template <int64_t VECTORS>
INLINE void columns(Factor a, const Panel& b, int64_t m, int64_t k, bool add, Panel c) {
    int64_t row = 0;
    for (; row + TILE <= m; row += TILE, a.at += TILE * a.row, c.at += TILE * c.length)
        tile<TILE, VECTORS>(a, b, k, add, c);
    for (; row < m; ++row, a.at += a.row, c.at += c.length) tile<1, VECTORS>(a, b, k, add, c);
}

// c (m, n) = a·b, or c += a·b; n is a multiple of LANES. An element is summed in one order, however c is tiled.
void multiply(const Factor& a, const Panel& b, int64_t m, int64_t n, int64_t k, bool add, const Panel& c) {
    int64_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) columns<2>(a, {b.at + i, b.length}, m, k, add, {c.at + i, c.length});
    if (i < n) columns<1>(a, {b.at + i, b.length}, m, k, add, {c.at + i, c.length});
}

INLINE float largest_of(const float* x, int64_t count) {
    float largest = x[0];
    int64_t i = 0;
    if (count >= WIDTH) {
        Floats best, value;
        load_floats(x, WIDTH, best);
        for (i = WIDTH; i + WIDTH <= count; i += WIDTH) {
            load_floats(x + i, WIDTH, value);
            best = value > best ? value : best;
        }
        for (int lane = 0; lane < WIDTH; ++lane) largest = best[lane] > largest ? best[lane] : largest;
    }
    for (; i < count; ++i) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

// Scores to their exponentials, relative to the largest; those behind the first `count`, up to `padded`, become 0.
// Returns the sum, and the logarithm of Σ exp(scale · score) in `normaliser`.
float exponentials(float* scores, int64_t count, int64_t padded, float scale, float& normaliser) {
    float largest = largest_of(scores, count);
    for (int64_t i = 0; i < padded; i += WIDTH) {
        Floats value;
        load_floats(scores + i, WIDTH, value);
        store_floats(exponential((value - largest) * scale), WIDTH, scores + i);
    }
    for (int64_t i = count; i < padded; ++i) scores[i] = 0;
    float sum = static_cast<float>(sum_over(padded, [&](int64_t i, int64_t) INLINED {
        return *reinterpret_cast<const Vector*>(scores + i);
    }));
    normaliser = largest * scale + std::log(sum);
    return sum;
}

// Scores to weights, and gradients of weights to those of scores: w = exp(scale · score − normaliser),
// d ← w (d − share) scale. Behind the first `count` elements, up to `padded`, both become 0.
void score_gradients(
    float* scores, float* d, int64_t count, int64_t padded, float scale, float normaliser, float share) {
    for (int64_t i = 0; i < padded; i += WIDTH) {
        Floats score, gradient;
        load_floats(scores + i, WIDTH, score);
        load_floats(d + i, WIDTH, gradient);
        Floats weight = exponential(score * scale - normaliser);
        store_floats(weight, WIDTH, scores + i);
        store_floats(weight * (gradient - share) * scale, WIDTH, d + i);
    }
    for (int64_t i = count; i < padded; ++i) scores[i] = d[i] = 0;
}

// Rounds to values of bfloat16, to nearest, ties to even; NaN stays NaN.
void round(float* x, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        uint32_t whole;
        std::memcpy(&whole, x + i, sizeof whole);
        whole = static_cast<uint32_t>(to_bfloat16(whole)) << 16;
        std::memcpy(x + i, &whole, sizeof whole);
    }
}

float dot(const float* a, const float* b, int64_t count) {
    return static_cast<float>(sum_over(count, [&](int64_t i, int64_t n) INLINED {
        Vector of_a, of_b;
        load(a + i, n, 0, of_a);
        load(b + i, n, 0, of_b);
        return of_a * of_b;
    }));
}
