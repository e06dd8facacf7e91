// Layer normalisation of rows (arXiv 1607.06450), with a scale and, if there is one, a shift:
//
//     mean = Σx / c,  r = 1 / √(Σ(x − mean)² / c + ε),  z = r (x − mean),  y = γ z [+ β]
//     d = γ dy,  dx = r (d − Σd / c − z Σ(d z) / c),  dγ = Σ dy z and dβ = Σ dy over the rows
//
// dγ and dβ are summed over groups of GROUP rows and then over the groups, so they do not depend on the number of
// threads.
#include <cmath>

#include "args.h"
#include "thread_pool.h"
#include "vector.h"

using namespace msaccel;

#define LOOPS "layer_norm_loops.h"
#include "dispatch.h"

namespace {

constexpr int64_t GROUP = 32;
constexpr double OPERATIONS_PER_ELEMENT = 16;

struct Rows {
    int64_t count, length, groups;

    explicit Rows(const Dims& x) : count(x[0]), length(x[1]), groups((count + GROUP - 1) / GROUP) {}

    // Calls work(group, row) for all rows.
    template <typename Work>
    void each(const Work& work) const {
        int threads = threads_for(OPERATIONS_PER_ELEMENT * static_cast<double>(count) * static_cast<double>(length));
        int parts = static_cast<int>(std::min<int64_t>(threads, groups));
        thread_pool(threads)->parallel_for(parts, [&](int part, int of) {
            for (int64_t group = groups * part / of; group < groups * (part + 1) / of; ++group)
                for (int64_t row = group * GROUP; row < std::min((group + 1) * GROUP, count); ++row) work(group, row);
        });
    }

    void sum_groups(const std::vector<float>& sums, float* to) const {
        for (int64_t i = 0; i < length; ++i) {
            double total = 0;
            for (int64_t group = 0; group < groups; ++group) total += sums[group * length + i];
            to[i] = static_cast<float>(total);
        }
    }
};

}  // namespace

// x (n, c), γ (c), [β (c)], (ε) → y (n, c), mean (n), r (n)
OPERATOR(layer_norm) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("a layer norm", 6, 7);
    int last = count - 1;
    const Dims of_x = args.dims(0, 2);
    Rows rows(of_x);
    auto read = [&](int of, const Dims& wanted) { return args.floats(of, wanted, "a layer norm"); };
    const float *x = args.floats(0), *gamma = read(1, {rows.length}), *epsilon = read(last - 3, {1});
    const float* beta = count == 7 ? read(2, {rows.length}) : nullptr;
    float *y = read(last - 2, of_x), *mean = read(last - 1, {rows.count}), *root = read(last, {rows.count});
    rows.each([&](int64_t, int64_t row) {
        int64_t at = row * rows.length;
        DISPATCH(normalise_row)(x + at, gamma, beta, rows.length, *epsilon, y + at, mean[row], root[row]);
    });
    return 0;
}

// dy, x (n, c), γ (c), mean (n), r (n) → dx (n, c), dγ (c), [dβ (c)]
OPERATOR(layer_norm_gradient) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the gradient of a layer norm", 7, 8);
    const Dims of_x = args.dims(1, 2);
    Rows rows(of_x);
    auto read = [&](int of, const Dims& wanted) { return args.floats(of, wanted, "a layer norm"); };
    const float *dy = read(0, of_x), *x = args.floats(1), *gamma = read(2, {rows.length});
    const float *mean = read(3, {rows.count}), *root = read(4, {rows.count});
    float *dx = read(5, of_x), *dgamma = read(6, {rows.length});
    float* dbeta = count == 8 ? read(7, {rows.length}) : nullptr;
    std::vector<float> scales(rows.groups * rows.length), shifts(dbeta ? scales.size() : 0);
    rows.each([&](int64_t group, int64_t row) {
        int64_t at = row * rows.length, sums = group * rows.length;
        DISPATCH(row_gradient)(
            dy + at, x + at, gamma, rows.length, mean[row], root[row], dx + at, scales.data() + sums,
            dbeta ? shifts.data() + sums : nullptr);
    });
    rows.sum_groups(scales, dgamma);
    if (dbeta) rows.sum_groups(shifts, dbeta);
    return 0;
}
