// Sums of products of two images at neighbouring taps of a kernel, with a channel in each lane.
#include "vector_loops.h"

constexpr int MOST_TAPS = 4;  // whose sums the registers hold

// Adds Σ dy · x at each tap from `first` on.
template <int TAPS>
INLINE void add_taps(const Pixels& of, int64_t first, double* sums) {
    Sum totals[TAPS];
    const float* dy = of.dy;
    for (int64_t image = 0; image < of.images; ++image)
        for (int64_t row = 0; row < of.rows; ++row) {
            const float* x = of.x + first * of.tap + image * of.image_of_x + row * of.row_of_x;
            for (int64_t column = 0; column < of.columns; ++column, dy += LANES, x += of.column_of_x) {
                Vector gradient, value;
                load(dy, LANES, 0, gradient);
                for (int tap = 0; tap < TAPS; ++tap) {
                    load(x + tap * of.tap, LANES, 0, value);
                    totals[tap] += gradient * value;
                }
            }
        }
    for (int tap = 0; tap < TAPS; ++tap)
        for (int lane = 0; lane < LANES; ++lane) sums[(first + tap) * LANES + lane] += totals[tap][lane];
}

void add_row_of_taps(const Pixels& of, int64_t count, double* sums) {
    int64_t tap = 0;
    for (; tap + MOST_TAPS <= count; tap += MOST_TAPS) add_taps<MOST_TAPS>(of, tap, sums);
    if (count - tap == 3) add_taps<3>(of, tap, sums);
    if (count - tap == 2) add_taps<2>(of, tap, sums);
    if (count - tap == 1) add_taps<1>(of, tap, sums);
}

void add_pixels(const float* dy, int64_t count, double* sums) {
    Sum total;
    for (int64_t pixel = 0; pixel < count; ++pixel) {
        Vector gradient;
        load(dy + pixel * LANES, LANES, 0, gradient);
        total += gradient;
    }
    for (int lane = 0; lane < LANES; ++lane) sums[lane] += total[lane];
}
