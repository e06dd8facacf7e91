// The loops of a dense layer beside its products.

void add_bias(const float* bias, int64_t rows, int64_t count, bool relu, float* y) {
    for (int64_t row = 0; row < rows; ++row, y += count) {
        for (int64_t i = 0; i < count; ++i) {
            float value = y[i] + bias[i];
            y[i] = relu && value <= 0 ? 0 : value;  // what is not a number stays
        }
    }
}

void pass(const float* dy, const float* y, int64_t count, float* g) {
    for (int64_t i = 0; i < count; ++i) g[i] = y[i] <= 0 ? 0 : dy[i];
}

void add_rows(const float* g, int64_t rows, int64_t count, float* sum) {
    for (int64_t i = 0; i < count; ++i) sum[i] = 0;
    for (int64_t row = 0; row < rows; ++row, g += count)
        for (int64_t i = 0; i < count; ++i) sum[i] += g[i];
}
