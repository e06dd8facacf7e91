// Passes of layer normalisation over a row.
#include "vector_loops.h"

void normalise_row(
    const float* x, const float* gamma, int64_t count, float epsilon, float* y, float& mean, float& root) {
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
        Vector value, scale;
        load(x + i, n, 0, value);
        load(gamma + i, n, 0, scale);
        store((value - mean) * root * scale, n, y + i);
    });
}

// dx of a row; its dy · z is added to dgamma.
void row_gradient(
    const float* dy, const float* x, const float* gamma, int64_t count, float mean, float root, float* dx,
    float* dgamma) {
    auto read = [&](int64_t i, int64_t n, Vector& z, Vector& d) INLINED {
        Vector scale;
        load(x + i, n, mean, z);
        load(dy + i, n, 0, d);
        load(gamma + i, n, 0, scale);
        z = (z - mean) * root;
        d = d * scale;
    };
    Vector z, d;
    double elements = static_cast<double>(count);
    float mean_d = static_cast<float>(sum_over(count, [&](int64_t i, int64_t n) INLINED {
        read(i, n, z, d);
        return d;
    }) / elements);
    float mean_dz = static_cast<float>(sum_over(count, [&](int64_t i, int64_t n) INLINED {
        read(i, n, z, d);
        return d * z;
    }) / elements);
    each_vector(0, count, [&](int64_t i, int64_t n) INLINED {
        Vector gradient, sum;
        read(i, n, z, d);
        load(dy + i, n, 0, gradient);
        load(dgamma + i, n, 0, sum);
        store(root * (d - mean_d - z * mean_dz), n, dx + i);
        store(sum + gradient * z, n, dgamma + i);
    });
}
