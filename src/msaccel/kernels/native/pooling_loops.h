// Loops of max pooling: in the blocked layout, in the plain one, and there of 2 × 2 windows with stride 2.

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

// Every `stride`-th element; `count` of them are wanted, others may be anything.
INLINE void load_every(const float* from, int64_t stride, int64_t count, Floats& to) {
    Floats right, odd;
    load_floats(from, WIDTH, to);
    if (stride == 2) {
        load_floats(from + WIDTH, WIDTH, right);
        deinterleave_floats(to, right, to, odd);
    } else if (stride > 2) {
        for (int lane = 1; lane < std::min<int64_t>(WIDTH, count); ++lane) to[lane] = from[lane * stride];
    }
}

// A plane in the plain layout, a vector of windows of a row at a time. `framed` holds −∞, and gets a copy of the plane.
void pool_plane(const Windows& w, const float* x, float* framed, float* y, uint8_t* which) {
    for (int64_t row = 0; row < w.height; ++row)
        std::memcpy(framed + row * w.framed_width() + w.left, x + row * w.width, w.width * sizeof(float));
    for (int64_t row = 0; row < w.out_height; ++row, y += w.out_width, which += w.out_width) {
        int64_t above = row * w.stride - w.top, first = std::max<int64_t>(0, -above);
        int64_t end = std::min(w.kernel, w.height - above);
        for (int64_t column = 0; column < w.out_width; column += WIDTH) {
            Floats best = Floats{} - std::numeric_limits<float>::infinity(), value;
            // As in blocks, the first tap inside the input is kept where no value is greater than −∞.
            Floats from = Floats{} + static_cast<float>(first * w.kernel);
            for (int lane = 0; lane < WIDTH && (column + lane) * w.stride < w.left; ++lane)
                from[lane] += static_cast<float>(w.left - (column + lane) * w.stride);
            if (w.relu) best = Floats{}, from = Floats{} + static_cast<float>(NONE);
            for (int64_t i = first; i < end; ++i) {
                const float* begin = framed + (above + i) * w.framed_width() + column * w.stride;
                for (int64_t j = 0; j < w.kernel; ++j) {
                    load_every(begin + j, w.stride, w.out_width - column, value);
                    keep_largest(value, Floats{} + static_cast<float>(i * w.kernel + j), best, from);
                }
            }
            store_floats(best, w.out_width - column, y + column);
            store_bytes(from, w.out_width - column, which + column);
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
