// Loops of Adasum over contiguous elements.

constexpr int PART = WIDTH / 2, PARTS = LANES / PART;  // GCC keeps wider vectors than the processor's in memory

typedef double Doubles __attribute__((vector_size(8 * PART), aligned(8), may_alias));
typedef float Singles __attribute__((vector_size(4 * PART), aligned(4), may_alias));

INLINE Doubles read(const float* from) {
    return __builtin_convertvector(*reinterpret_cast<const Singles*>(from), Doubles);
}

// LANES sums each of a·b, ‖a‖² and ‖b‖², in float64; a vector may come in pieces that are multiples of LANES long
void products(const float* __restrict a, const float* __restrict b, int64_t count, double* __restrict sums) {
    Doubles* all = reinterpret_cast<Doubles*>(sums);
    Doubles dots[PARTS], of_a[PARTS], of_b[PARTS];
    for (int part = 0; part < PARTS; ++part) {
        dots[part] = all[part];
        of_a[part] = all[PARTS + part];
        of_b[part] = all[2 * PARTS + part];
    }
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int part = 0; part < PARTS; ++part) {
            Doubles x = read(a + i + part * PART), y = read(b + i + part * PART);
            dots[part] += x * y;
            of_a[part] += x * x;
            of_b[part] += y * y;
        }
    for (int part = 0; part < PARTS; ++part) {
        all[part] = dots[part];
        all[PARTS + part] = of_a[part];
        all[2 * PARTS + part] = of_b[part];
    }
    for (int lane = 0; i < count; ++i, ++lane) {
        double x = a[i], y = b[i];
        sums[lane] += x * y;
        sums[LANES + lane] += x * x;
        sums[2 * LANES + lane] += y * y;
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

// w ← w − difference
void subtract(const float* __restrict difference, int64_t count, float* __restrict w) {
    for (int64_t i = 0; i < count; ++i) w[i] -= difference[i];
}
