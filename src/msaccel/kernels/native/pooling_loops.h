// Loops of max pooling in the blocked layout, and of 2 × 2 pooling with stride 2 in the plain one.

#include "vector_loops.h"

// Updates the maxima `best` with a tap and records it in `from`. The first of equal taps wins; NaN counts as largest.
INLINE void keep_largest(const Floats& value, const Floats& tap, Floats& best, Floats& from) {
    // One comparison per statement: the compiler turns these into masks, but not their combinations.
    from = value > best ? tap : from;
    best = value > best ? value : best;
    from = value == value ? from : tap;
    best = value == value ? best : value;
}

// A vector holds one tap of some of the channels of a block, which is not smaller.
void pool_blocks(const Windows& w, const float* x, float* y, uint8_t* which) {
    for (int64_t row = 0; row < w.out_height; ++row) {
        for (int64_t at = 0; at < w.out_width * w.channels; at += WIDTH, y += WIDTH, which += WIDTH) {
            int64_t column = at / w.channels, channel = at % w.channels;
            Floats best = Floats{} - std::numeric_limits<float>::infinity(), value;
            // The index of a tap, as a float. It starts at the first tap inside the input, which is kept where no value
            // is greater than −∞.
            int64_t first = std::max<int64_t>(0, w.top - row * w.stride) * w.kernel +
                            std::max<int64_t>(0, w.left - column * w.stride);
            Floats from = Floats{} + static_cast<float>(first);
            if (w.relu) best = Floats{}, from = Floats{} + static_cast<float>(NONE);
            for (int64_t i = 0; i < w.kernel; ++i) {
                int64_t above = row * w.stride + i - w.top;
                if (above < 0 || above >= w.height) continue;
                for (int64_t j = 0; j < w.kernel; ++j) {
                    int64_t left = column * w.stride + j - w.left;
                    if (left < 0 || left >= w.width) continue;
                    load_floats(x + (above * w.width + left) * w.channels + channel, WIDTH, value);
                    keep_largest(value, Floats{} + static_cast<float>(i * w.kernel + j), best, from);
                }
            }
            store_floats(best, WIDTH, y);
            store_bytes(from, WIDTH, which);
        }
    }
}

// Halves height and width over consecutive planes with `rows` rows of windows in all, a vector of windows of a row at a
// time. A vector may extend beyond its row into the next, which is processed later, but not beyond the last row.
void halve(const Windows& w, int64_t rows, const float* x, float* y, uint8_t* which) {
    const float *x_end = x + 2 * rows * w.width, *y_end = y + rows * w.out_width;
    for (int64_t row = 0; row < rows; ++row, x += 2 * w.width, y += w.out_width, which += w.out_width) {
        for (int64_t column = 0; column < w.out_width; column += WIDTH) {
            Floats best = Floats{} - std::numeric_limits<float>::infinity(), from = {}, left, right, taps[4];
            if (w.relu) best = Floats{}, from = Floats{} + static_cast<float>(NONE);
            for (int line = 0; line < 2; ++line) {
                const float* begin = x + line * w.width + 2 * column;
                load_floats(begin, x_end - begin, left);
                load_floats(begin + WIDTH, x_end - begin - WIDTH, right);
                deinterleave_floats(left, right, taps[2 * line], taps[2 * line + 1]);
            }
            for (int i = 0; i < 4; ++i) keep_largest(taps[i], Floats{} + static_cast<float>(i), best, from);
            store_floats(best, y_end - y - column, y + column);
            store_bytes(from, y_end - y - column, which + column);
        }
    }
}

void halve_gradient(const Windows& w, int64_t rows, const float* dy, const uint8_t* which, float* dx) {
    const float *dy_end = dy + rows * w.out_width, *dx_end = dx + 2 * rows * w.width;
    // In this order, because a vector may write into the next row, which then overwrites that.
    for (int64_t line = 0; line < 2 * rows; ++line, dx += w.width) {
        float tap = static_cast<float>(line % 2 * 2);
        for (int64_t column = 0; column < w.out_width; column += WIDTH) {
            Floats value, from, left, right;
            load_floats(dy + column, dy_end - dy - column, value);
            load_bytes(which + column, dy_end - dy - column, from);
            Floats even = from == tap ? value : Floats{}, odd = from == tap + 1 ? value : Floats{};
            interleave_floats(even, odd, left, right);
            float* begin = dx + 2 * column;
            store_floats(left, dx_end - begin, begin);
            store_floats(right, dx_end - begin - WIDTH, begin + WIDTH);
        }
        if (line % 2) dy += w.out_width, which += w.out_width;
    }
}
