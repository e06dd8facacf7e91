// Loops of Adasum over contiguous elements.

// sums ← a·b, ‖a‖², ‖b‖², in float64
void products(const float* __restrict a, const float* __restrict b, int64_t count, double* __restrict sums) {
    double dots[LANES] = {}, of_a[LANES] = {}, of_b[LANES] = {};
    int64_t i = 0;
    auto add = [&](int lane, double x, double y) INLINED {
        dots[lane] += x * y;
        of_a[lane] += x * x;
        of_b[lane] += y * y;
    };
    for (; i + LANES <= count; i += LANES)
        for (int lane = 0; lane < LANES; ++lane) add(lane, a[i + lane], b[i + lane]);
    for (int lane = 0; i < count; ++i, ++lane) add(lane, a[i], b[i]);
    sums[0] = sums[1] = sums[2] = 0;
    for (int lane = 0; lane < LANES; ++lane) {
        sums[0] += dots[lane];
        sums[1] += of_a[lane];
        sums[2] += of_b[lane];
    }
}

// sum ← of_a · a + of_b · b
void weighted_sum(
    const float* __restrict a, double of_a, const float* __restrict b, double of_b, int64_t count,
    float* __restrict sum) {
    for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<float>(of_a * a[i] + of_b * b[i]);
}

// difference ← base − w, the negated step; then w ← base
void revert_to_base(const float* __restrict base, int64_t count, float* __restrict w, float* __restrict difference) {
    for (int64_t i = 0; i < count; ++i) {
        difference[i] = base[i] - w[i];
        w[i] = base[i];
    }
}

// base ← base − difference; then w ← base
void step_from_base(const float* __restrict difference, int64_t count, float* __restrict w, float* __restrict base) {
    for (int64_t i = 0; i < count; ++i) w[i] = base[i] = base[i] - difference[i];
}
