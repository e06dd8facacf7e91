// Products of matrices of transforms, in registers. Included once per target behind winograd_loops.h.

// c[row][column] = Σ over k of a[row · a_row + k · a_k] · b[k · b_k + column], added to c if `add`: ROWS rows and
// COLUMNS vectors of columns, with all sums in registers. Elements of a and b may be pairs.
template <bool PAIRED, int ROWS, int COLUMNS>
INLINE void product_of(
    const float* a, int64_t a_row, int64_t a_k, const float* b, int64_t b_k, int64_t count, bool add, float* c,
    int64_t c_row) {
    Floats sums[ROWS][COLUMNS] = {};
    for (int64_t k = 0; k < count; ++k, a += a_k, b += b_k) {
        Floats of_b[COLUMNS];
        for (int column = 0; column < COLUMNS; ++column) of_b[column] = get(b + column * WIDTH);
        for (int row = 0; row < ROWS; ++row) {
            Floats of_a = broadcast(a[row * a_row]);
            for (int column = 0; column < COLUMNS; ++column)
                sums[row][column] = PAIRED ? multiply_add_pairs(of_a, of_b[column], sums[row][column])
                                           : multiply_add(of_a, of_b[column], sums[row][column]);
        }
    }
    for (int row = 0; row < ROWS; ++row)
        for (int column = 0; column < COLUMNS; ++column) {
            float* to = c + row * c_row + column * WIDTH;
            put(add ? get(to) + sums[row][column] : sums[row][column], to);
        }
}

template <bool PAIRED, int COLUMNS, int ROWS = MOST_ROWS>
INLINE void product_of_rows(
    int rows, const float* a, int64_t a_row, int64_t a_k, const float* b, int64_t b_k, int64_t count, bool add,
    float* c, int64_t c_row) {
    if (rows == ROWS) return product_of<PAIRED, ROWS, COLUMNS>(a, a_row, a_k, b, b_k, count, add, c, c_row);
    if constexpr (ROWS > 1)
        product_of_rows<PAIRED, COLUMNS, ROWS - 1>(rows, a, a_row, a_k, b, b_k, count, add, c, c_row);
}

// All rows, in groups of nearly equal size, and one or two vectors of columns.
template <bool PAIRED>
INLINE void product(
    int64_t rows, bool two, const float* a, int64_t a_row, int64_t a_k, const float* b, int64_t b_k, int64_t count,
    bool add, float* c, int64_t c_row) {
    int64_t groups = (rows + MOST_ROWS - 1) / MOST_ROWS;
    for (int64_t group = 0; group < groups; ++group) {
        int64_t first = rows * group / groups;
        int here = static_cast<int>(rows * (group + 1) / groups - first);
        if (two)
            product_of_rows<PAIRED, 2>(here, a + first * a_row, a_row, a_k, b, b_k, count, add, c + first * c_row, c_row);
        else
            product_of_rows<PAIRED, 1>(here, a + first * a_row, a_row, a_k, b, b_k, count, add, c + first * c_row, c_row);
    }
}
