// Loops of an update over contiguous elements.
#include "vector_loops.h"

double sum_of_squares(const float* g, int64_t count) {
    return squares_over(count, [&](int64_t i) INLINED { return g[i]; });
}

void scale(const float* __restrict g, int64_t count, float factor, float* __restrict product) {
    for (int64_t i = 0; i < count; ++i) product[i] = g[i] * factor;
}

void add(const float* __restrict g, int64_t count, float* __restrict sum) {
    for (int64_t i = 0; i < count; ++i) sum[i] += g[i];
}

// v ← μ v + (g + λ w),  w ← w − η v; or `step` gets by how much w would fall, and w stays
template <bool MOVES>
void momentum_step(
    const float* __restrict g, int64_t count, float rate, float momentum, float decay, float* __restrict w,
    float* __restrict v, float* __restrict step) {
    for (int64_t i = 0; i < count; ++i) {
        float velocity = v[i] * momentum + (g[i] + decay * w[i]), moved = w[i] - rate * velocity;
        v[i] = velocity;
        if (MOVES) {
            w[i] = moved;
        } else {
            step[i] = w[i] - moved;
        }
    }
}

// m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²,  w ← κ w − η m / (√v + ε), where g includes λ w; or `step` gets by how
// much w would fall, and w stays
template <bool MOVES>
void adam_step(
    const float* __restrict g, int64_t count, float rate, float beta1, float beta2, float epsilon, float decay,
    float keep, float* __restrict w, float* __restrict m, float* __restrict v, float* __restrict step) {
    for (int64_t i = 0; i < count; ++i) {
        float gradient = g[i] + decay * w[i];
        float mean = beta1 * m[i] + (1 - beta1) * gradient, square = beta2 * v[i] + (1 - beta2) * (gradient * gradient);
        float moved = keep * w[i] - rate * mean / (std::sqrt(square) + epsilon);
        m[i] = mean;
        v[i] = square;
        if (MOVES) {
            w[i] = moved;
        } else {
            step[i] = w[i] - moved;
        }
    }
}
