// Loops over the pixels of one channel.
#include "vector_loops.h"

double total(const float* x, int64_t count) {
    return sum_over(count, [&](int64_t i, int64_t n) INLINED {
        Vector value;
        load(x + i, n, 0, value);
        return value;
    });
}

double total_of_products(const float* a, const float* b, int64_t count) {
    return sum_over(count, [&](int64_t i, int64_t n) INLINED {
        Vector left, right;
        load(a + i, n, 0, left);
        load(b + i, n, 0, right);
        return left * right;
    });
}

void scale(const float* x, int64_t count, float factor, float* y) {
    each_vector(0, count, [&](int64_t i, int64_t n) INLINED {
        Vector value;
        load(x + i, n, 0, value);
        store(value * factor, n, y + i);
    });
}
