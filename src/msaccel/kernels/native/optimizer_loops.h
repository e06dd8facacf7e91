// Loops of the newer optimizers over contiguous elements: g is the gradient, w the weight, and beta points to β, 1 − β.
#include "vector_loops.h"

double sum_of_squares(const float* x, int64_t count) {
    return squares_over(count, [&](int64_t i) INLINED { return x[i]; });
}

void lion_step(
    const float* __restrict g, int64_t count, float rate, const float* beta1, const float* beta2, float decay,
    float* __restrict w, float* __restrict m) {
    const float keep1 = beta1[0], add1 = beta1[1], keep2 = beta2[0], add2 = beta2[1];
    for (int64_t i = 0; i < count; ++i) {
        float mixed = keep1 * m[i] + add1 * g[i], sign = mixed > 0 ? 1 : mixed < 0 ? -1 : mixed;  // of NaN: NaN
        m[i] = keep2 * m[i] + add2 * g[i];
        w[i] -= rate * (sign + decay * w[i]);
    }
}

void lars_step(
    const float* __restrict g, int64_t count, float rate, float momentum, float ratio, float decay,
    float* __restrict w, float* __restrict v) {
    for (int64_t i = 0; i < count; ++i) {
        v[i] = momentum * v[i] + rate * (ratio * (g[i] + decay * w[i]));
        w[i] -= v[i];
    }
}

void lamb_moments(
    const float* __restrict g, int64_t count, const float* beta1, const float* beta2, float* __restrict m,
    float* __restrict v) {
    const float keep1 = beta1[0], add1 = beta1[1], keep2 = beta2[0], add2 = beta2[1];
    for (int64_t i = 0; i < count; ++i) {
        m[i] = keep1 * m[i] + add1 * g[i];
        v[i] = keep2 * v[i] + add2 * g[i] * g[i];
    }
}

INLINE float lamb_direction(
    float w, float m, float v, float correction1, float correction2, float epsilon, float decay) {
    return m / correction1 / (std::sqrt(v / correction2) + epsilon) + decay * w;
}

double lamb_squares(
    const float* w, const float* m, const float* v, int64_t count, float correction1, float correction2, float epsilon,
    float decay) {
    return squares_over(count, [&](int64_t i) INLINED {
        return lamb_direction(w[i], m[i], v[i], correction1, correction2, epsilon, decay);
    });
}

void lamb_step(
    float* __restrict w, const float* __restrict m, const float* __restrict v, int64_t count, float rate,
    float correction1, float correction2, float epsilon, float decay, float ratio) {
    for (int64_t i = 0; i < count; ++i)
        w[i] -= rate * (ratio * lamb_direction(w[i], m[i], v[i], correction1, correction2, epsilon, decay));
}

// y are the weights that train, z those that take the steps, and x is the average of z.
template <bool ADAPTIVE>
void schedule_free_step(
    const float* __restrict g, int64_t count, float rate, float to_z, const float* beta2, float epsilon, float share,
    float decay, float* __restrict y, float* __restrict z, float* __restrict x, float* __restrict v) {
    const float keep = beta2[0], add = beta2[1];
    for (int64_t i = 0; i < count; ++i) {
        float step = g[i];
        if (ADAPTIVE) {
            v[i] = keep * v[i] + add * g[i] * g[i];
            step = g[i] / (std::sqrt(v[i]) + epsilon);
        }
        z[i] -= rate * (step + decay * y[i]);
        x[i] = (1 - share) * x[i] + share * z[i];
        y[i] = x[i] + to_z * (z[i] - x[i]);
    }
}
