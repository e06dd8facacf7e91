// Loops of Adasum over contiguous elements.

typedef double Doubles __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

// LANES sums each of a·b, ‖a‖² and ‖b‖², in float64; a vector may come in pieces that are multiples of LANES long
void products(const float* __restrict a, const float* __restrict b, int64_t count, double* __restrict sums) {
    Doubles* all = reinterpret_cast<Doubles*>(sums);
    Doubles dots = all[0], of_a = all[1], of_b = all[2];
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        Doubles x = __builtin_convertvector(*reinterpret_cast<const Vector*>(a + i), Doubles);
        Doubles y = __builtin_convertvector(*reinterpret_cast<const Vector*>(b + i), Doubles);
        dots += x * y;
        of_a += x * x;
        of_b += y * y;
    }
    for (int lane = 0; i < count; ++i, ++lane) {
        double x = a[i], y = b[i];
        dots[lane] += x * y;
        of_a[lane] += x * x;
        of_b[lane] += y * y;
    }
    all[0] = dots;
    all[1] = of_a;
    all[2] = of_b;
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

// w ← w − difference
void subtract(const float* __restrict difference, int64_t count, float* __restrict w) {
    for (int64_t i = 0; i < count; ++i) w[i] -= difference[i];
}
