// Sums of products of two images, for neighbouring taps of a kernel.
#include "vector_loops.h"

constexpr int MOST_TAPS = 4;  // whose sums the registers hold

// Adds Σ dy · x at each tap, in LANES sums of it.
template <int TAPS>
INLINE void add_taps(const Pixels& of, const int64_t* taps, double* sums) {
    Sum totals[TAPS];
    for (int64_t image = 0; image < of.images; ++image)
        for (int64_t row = 0; row < of.rows; ++row) {
            const float* dy = of.dy + image * of.image_of_dy + row * of.row_of_dy;
            const float* x = of.x + image * of.image_of_x + row * of.row_of_x;
            each_vector(0, of.columns, [&](int64_t i, int64_t n) INLINED {
                Vector gradient, value;
                load(dy + i, n, 0, gradient);
                for (int tap = 0; tap < TAPS; ++tap) {
                    load(x + taps[tap] + i, n, 0, value);
                    totals[tap] += gradient * value;
                }
            });
        }
    for (int tap = 0; tap < TAPS; ++tap)
        for (int lane = 0; lane < LANES; ++lane) sums[tap * LANES + lane] += totals[tap][lane];
}

void add_row_of_taps(const Pixels& of, const int64_t* taps, int64_t count, double* sums) {
    int64_t tap = 0;
    for (; tap + MOST_TAPS <= count; tap += MOST_TAPS) add_taps<MOST_TAPS>(of, taps + tap, sums + tap * LANES);
    if (count - tap == 3) add_taps<3>(of, taps + tap, sums + tap * LANES);
    if (count - tap == 2) add_taps<2>(of, taps + tap, sums + tap * LANES);
    if (count - tap == 1) add_taps<1>(of, taps + tap, sums + tap * LANES);
}

double total(const float* x, int64_t count) {
    return sum_over(count, [&](int64_t i, int64_t n) INLINED {
        Vector value;
        load(x + i, n, 0, value);
        return value;
    });
}
