// Maximum pooling in the blocked layout.

#include "vector_loops.h"

// Sixteen channels at a time: a tap is a vector.
void pool_blocks(const Windows& w, const float* x, float* y, uint8_t* which) {
    for (int64_t row = 0; row < w.out_height; ++row) {
        for (int64_t column = 0; column < w.out_width; ++column, y += LANES, which += LANES) {
            Vector best = Vector{} - std::numeric_limits<float>::infinity(), value;
            Vector from = {}, tap = {};  // the numbers of taps, as floats
            if (w.relu) best = Vector{}, from = Vector{} + static_cast<float>(NONE);
            for (int64_t i = 0; i < w.kernel; ++i) {
                int64_t above = row * w.stride + i - w.padding;
                if (above < 0 || above >= w.height) continue;
                for (int64_t j = 0; j < w.kernel; ++j) {
                    int64_t left = column * w.stride + j - w.padding;
                    if (left < 0 || left >= w.width) continue;
                    load(x + (above * w.width + left) * LANES, LANES, 0, value);
                    // One comparison a line: the compiler makes masks of them, but no vectors of masks' sums.
                    tap = Vector{} + static_cast<float>(i * w.kernel + j);
                    from = value > best ? tap : from;
                    best = value > best ? value : best;
                    from = value == value ? from : tap;
                    best = value == value ? best : value;
                }
            }
            store(best, LANES, y);
            float taps[LANES];
            store(from, LANES, taps);
            for (int lane = 0; lane < LANES; ++lane) which[lane] = static_cast<uint8_t>(static_cast<int>(taps[lane]));
        }
    }
}
