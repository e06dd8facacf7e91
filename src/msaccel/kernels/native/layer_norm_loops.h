// Passes of layer normalisation over a row.
#include "vector_loops.h"

void normalise_row(
    const float* x, const float* gamma, const float* beta, int64_t count, float epsilon, float* y, float& mean,
    float& root) {
    double elements = static_cast<double>(count);
    mean = static_cast<float>(sum_over(count, [&](int64_t i, int64_t n) INLINED {
        Vector value;
        load(x + i, n, 0, value);
        return value;
    }) / elements);
    double squares = sum_over(count, [&](int64_t i, int64_t n) INLINED {
        Vector value;
        load(x + i, n, mean, value);
        return (value - mean) * (value - mean);
    });
    root = static_cast<float>(1 / std::sqrt(squares / elements + epsilon));
    each_vector(0, count, [&](int64_t i, int64_t n) INLINED {
        Vector value, scale, shift;
        load(x + i, n, 0, value);
        load(gamma + i, n, 0, scale);
        value = (value - mean) * root * scale;
        if (beta) {
            load(beta + i, n, 0, shift);
            value += shift;
        }
        store(value, n, y + i);
    });
}

// dx of a row; its dy · z is added to dgamma and, if there is one, its dy to dbeta.
void row_gradient(
    const float* dy, const float* x, const float* gamma, int64_t count, float mean, float root, float* dx,
    float* dgamma, float* dbeta) {
    auto normalised = [&](int64_t i, int64_t n) INLINED {
        Vector value;
        load(x + i, n, mean, value);
        return (value - mean) * root;
    };
    auto scaled = [&](int64_t i, int64_t n) INLINED {
        Vector gradient, scale;
        load(dy + i, n, 0, gradient);
        load(gamma + i, n, 0, scale);
        return gradient * scale;
    };
    double elements = static_cast<double>(count);
    float mean_d = static_cast<float>(sum_over(count, scaled) / elements);
    float mean_dz = static_cast<float>(sum_over(count, [&](int64_t i, int64_t n) INLINED {
        return scaled(i, n) * normalised(i, n);
    }) / elements);
    each_vector(0, count, [&](int64_t i, int64_t n) INLINED {
        Vector gradient, sum, z = normalised(i, n);
        load(dy + i, n, 0, gradient);
        load(dgamma + i, n, 0, sum);
        store(root * (scaled(i, n) - mean_d - z * mean_dz), n, dx + i);
        store(sum + gradient * z, n, dgamma + i);
        if (dbeta) {
            load(dbeta + i, n, 0, sum);
            store(sum + gradient, n, dbeta + i);
        }
    });
}
