// Loops of max pooling in the blocked layout, and of 2 × 2 pooling with stride 2 in the plain one.

#include "vector_loops.h"

// A vector holds one tap of 16 channels.
void pool_blocks(const Windows& w, const float* x, float* y, uint8_t* which) {
    for (int64_t row = 0; row < w.out_height; ++row) {
        for (int64_t column = 0; column < w.out_width; ++column, y += LANES, which += LANES) {
            Vector best = Vector{} - std::numeric_limits<float>::infinity(), value;
            // The index of a tap, as a float. It starts at the first tap inside the input, which is kept where no value
            // is greater than −∞.
            int64_t first = std::max<int64_t>(0, w.padding - row * w.stride) * w.kernel +
                            std::max<int64_t>(0, w.padding - column * w.stride);
            Vector from = Vector{} + static_cast<float>(first), tap = {};
            if (w.relu) best = Vector{}, from = Vector{} + static_cast<float>(NONE);
            for (int64_t i = 0; i < w.kernel; ++i) {
                int64_t above = row * w.stride + i - w.padding;
                if (above < 0 || above >= w.height) continue;
                for (int64_t j = 0; j < w.kernel; ++j) {
                    int64_t left = column * w.stride + j - w.padding;
                    if (left < 0 || left >= w.width) continue;
                    load(x + (above * w.width + left) * LANES, LANES, 0, value);
                    // One comparison per statement: the compiler turns these into masks, but not their combinations.
                    tap = Vector{} + static_cast<float>(i * w.kernel + j);
                    from = value > best ? tap : from;
                    best = value > best ? value : best;
                    from = value == value ? from : tap;
                    best = value == value ? best : value;
                }
            }
            store(best, LANES, y);
            store_bytes(from, LANES, which);
        }
    }
}

// Halves height and width over consecutive planes with `rows` rows of windows in all, 16 windows of a row at a time. A
// vector may extend beyond its row into the next, which is processed later, but not beyond the last row.
void halve(const Windows& w, int64_t rows, const float* x, float* y, uint8_t* which) {
    const float *x_end = x + 2 * rows * w.width, *y_end = y + rows * w.out_width;
    for (int64_t row = 0; row < rows; ++row, x += 2 * w.width, y += w.out_width, which += w.out_width) {
        for (int64_t column = 0; column < w.out_width; column += LANES) {
            Vector best = Vector{} - std::numeric_limits<float>::infinity(), from = {}, taps[4];
            if (w.relu) best = Vector{}, from = Vector{} + static_cast<float>(NONE);
            for (int line = 0; line < 2; ++line) {
                const float* begin = x + line * w.width + 2 * column;
                Vector left, right = {};
                load(begin, std::min<int64_t>(LANES, x_end - begin), 0, left);
                if (x_end - begin > LANES)
                    load(begin + LANES, std::min<int64_t>(LANES, x_end - begin - LANES), 0, right);
                deinterleave(left, right, taps[2 * line], taps[2 * line + 1]);
            }
            for (int i = 0; i < 4; ++i) {
                Vector value = taps[i], tap = Vector{} + static_cast<float>(i);
                from = value > best ? tap : from;
                best = value > best ? value : best;
                from = value == value ? from : tap;
                best = value == value ? best : value;
            }
            int64_t count = std::min<int64_t>(LANES, y_end - y - column);
            store(best, count, y + column);
            store_bytes(from, count, which + column);
        }
    }
}

void halve_gradient(const Windows& w, int64_t rows, const float* dy, const uint8_t* which, float* dx) {
    const float *dy_end = dy + rows * w.out_width, *dx_end = dx + 2 * rows * w.width;
    // In this order, because a vector may write into the next row, which then overwrites that.
    for (int64_t line = 0; line < 2 * rows; ++line, dx += w.width) {
        float tap = static_cast<float>(line % 2 * 2);
        for (int64_t column = 0; column < w.out_width; column += LANES) {
            Vector value, from, left, right;
            int64_t count = std::min<int64_t>(LANES, dy_end - dy - column);
            load(dy + column, count, 0, value);
            load_bytes(which + column, count, from);
            interleave(from == tap ? value : Vector{}, from == tap + 1 ? value : Vector{}, left, right);
            float* begin = dx + 2 * column;
            store(left, std::min<int64_t>(LANES, dx_end - begin), begin);
            if (dx_end - begin > LANES) store(right, std::min<int64_t>(LANES, dx_end - begin - LANES), begin + LANES);
        }
        if (line % 2) dy += w.out_width, which += w.out_width;
    }
}
