// The loops of an update over numbers that lie together.

#include "vector_loops.h"

double squares(const float* g, int64_t count) {
    double total = 0;
    for (int64_t begin = 0; begin < count; begin += LONGEST) {
        int64_t end = std::min(begin + LONGEST, count), i = begin;
        float lanes[LANES] = {};
        for (; i + LANES <= end; i += LANES)
            for (int lane = 0; lane < LANES; ++lane) lanes[lane] += g[i + lane] * g[i + lane];
        for (int lane = 0; i < end; ++i, ++lane) lanes[lane] += g[i] * g[i];
        for (float lane : lanes) total += lane;
    }
    return total;
}

// v ← μ v + (g + λ w),  w ← w − η v
void step(
    const float* __restrict g, int64_t count, float rate, float momentum, float decay, float* __restrict w,
    float* __restrict v) {
    for (int64_t i = 0; i < count; ++i) {
        float velocity = v[i] * momentum + (g[i] + decay * w[i]);
        v[i] = velocity;
        w[i] -= rate * velocity;
    }
}
