// Causal self-attention (arXiv 1706.03762) of blocks of t positions, for each head with its part of q, k and v:
//
//     s = q·kᵀ / √d,  w = softmax of s over this position and those before,  y = w·v
//     dv = wᵀ·dy,  ds = w ∘ (dy·vᵀ − Σ dy ∘ y) / √d,  dq = ds·k,  dk = dsᵀ·q
//
// Queries are taken in bands of BAND rows, with the keys up to the band's last row. So no matrix of t × t is kept, and
// the scores of later positions are not computed, but for those within a band. The gradient computes w again from the
// logarithm of its normaliser. A head is computed by one thread, so the bits do not depend on the number of threads.
// With products in bfloat16 all factors are rounded to it, but multiplied here, in float32: that is fast enough.
#include <cmath>
#include <limits>
#include <vector>

#include "args.h"
#include "plan.h"
#include "scratch.h"
#include "thread_pool.h"
#include "vector.h"

using namespace msaccel;

namespace {

// The left factor of a product: element (i, j) is at[i · row + j · column].
struct Factor {
    const float* at;
    int64_t row, column;
};

// A matrix in scratch memory, whose rows are so long, a multiple of LANES.
struct Panel {
    float* at;
    int64_t length;

    Factor factor() const { return {at, length, 1}; }
    Factor transposed() const { return {at, 1, length}; }
    Panel from(int64_t row) const { return {at + row * length, length}; }
};

}  // namespace

#define LOOPS "attention_loops.h"
#include "dispatch.h"

namespace {

constexpr int64_t BAND = 16;

int64_t padded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

// Panels of a head, one behind the other in scratch memory.
struct Panels {
    float* at;

    Panel next(int64_t rows, int64_t columns) {
        Panel made{at, padded(columns)};
        at += rows * made.length;
        return made;
    }
};

void unpack(const Panel& from, int64_t rows, int64_t columns, float* to, int64_t to_row) {
    for (int64_t row = 0; row < rows; ++row) std::copy_n(from.at + row * from.length, columns, to + row * to_row);
}

struct Attention {
    int64_t rows, width, heads, block, size;
    float scale;
    bool rounds;  // factors of products, to bfloat16

    // `qkv` is a tensor (n · t, 3 c), `settings` (heads, t, how products are computed).
    Attention(const Args& args, int qkv, int settings) : rows(args.dims(qkv, 2)[0]), width(args.dims(qkv, 2)[1] / 3) {
        const int32_t* numbers = args.numbers(settings, 3);
        heads = numbers[0], block = numbers[1], rounds = products(numbers[2]) != Products::float32;
        if (heads < 1 || block < 1 || rows % block || width % heads || args.dims(qkv, 2)[1] != 3 * width)
            throw Error("the shapes of an attention do not belong together");
        size = width / heads;
        scale = static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
    }

    float* matrix(const Args& args, int of, int64_t columns) const {
        return args.floats(of, {rows, columns}, "an attention");
    }

    // Copies the first `columns` elements of rows; what a panel's rows have more becomes 0.
    void pack(const float* from, int64_t from_row, int64_t count, int64_t columns, const Panel& to) const {
        for (int64_t i = 0; i < count; ++i) {
            float* row = to.from(i).at;
            std::fill(std::copy_n(from + i * from_row, columns, row), row + to.length, 0.0f);
            round(row, columns);
        }
    }

    void pack_transposed(const float* from, int64_t from_row, int64_t count, int64_t columns, const Panel& to) const {
        for (int64_t i = 0; i < columns; ++i) {
            float* row = to.from(i).at;
            for (int64_t j = 0; j < count; ++j) row[j] = from[j * from_row + i];
            std::fill(row + count, row + to.length, 0.0f);
            round(row, count);
        }
    }

    void round(float* factors, int64_t count) const {
        if (rounds) DISPATCH(round)(factors, count);
    }

    // Calls work(first row, head, scratch memory of so many floats) for each head of each block.
    template <typename Work>
    void each(int products, int64_t floats, const Work& work) const {
        int64_t all = rows / block * heads;
        double operations = static_cast<double>(rows * block) * static_cast<double>(width) * products;
        int threads = threads_for(operations), parts = static_cast<int>(std::min<int64_t>(threads, all));
        thread_pool(threads)->parallel_for(parts, [&](int part, int of) {
            static thread_local Scratch scratch;
            float* memory = scratch.floats(floats);
            for (int64_t i = all * part / of; i < all * (part + 1) / of; ++i)
                work(i / heads * block, i % heads, Panels{memory});
        });
    }
};

}  // namespace

// qkv (n · t, 3 c), (heads, t, how products are computed) → y (n · t, c), normalisers (n · t, heads)
OPERATOR(attention) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("attention", 4, 4);
    Attention of(args, 0, 1);
    const float* qkv = args.floats(0);
    float *y = of.matrix(args, 2, of.width), *normalisers = of.matrix(args, 3, of.heads);
    const int64_t t = of.block, d = of.size, row = 3 * of.width;
    int64_t floats = d * padded(t) + t * padded(d) + BAND * (padded(t) + 2 * padded(d));
    of.each(2, floats, [&](int64_t first, int64_t head, Panels memory) {
        const float* from = qkv + first * row + head * d;
        Panel keys = memory.next(d, t), values = memory.next(t, d);
        Panel queries = memory.next(BAND, d), scores = memory.next(BAND, t), sums = memory.next(BAND, d);
        of.pack_transposed(from + of.width, row, t, d, keys);
        of.pack(from + 2 * of.width, row, t, d, values);
        for (int64_t begin = 0; begin < t; begin += BAND) {
            int64_t band = std::min(BAND, t - begin), seen = begin + band;
            of.pack(from + begin * row, row, band, d, queries);
            DISPATCH(multiply)(queries.factor(), keys, band, padded(seen), d, false, scores);
            float totals[BAND];
            for (int64_t i = 0; i < band; ++i) {
                totals[i] = DISPATCH(exponentials)(
                    scores.from(i).at, begin + i + 1, padded(seen), of.scale,
                    normalisers[(first + begin + i) * of.heads + head]);
                of.round(scores.from(i).at, seen);
            }
            DISPATCH(multiply)(scores.factor(), values, band, padded(d), seen, false, sums);
            for (int64_t i = 0; i < band; ++i)
                for (int64_t j = 0; j < d; ++j)
                    y[(first + begin + i) * of.width + head * d + j] = sums.from(i).at[j] / totals[i];
        }
    });
    return 0;
}

// dy, y (n · t, c), qkv (n · t, 3 c), normalisers (n · t, heads), (heads, t, how products are computed) → dqkv
OPERATOR(attention_gradient) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the gradient of attention", 6, 6);
    Attention of(args, 2, 4);
    const float *dy = of.matrix(args, 0, of.width), *y = of.matrix(args, 1, of.width), *qkv = args.floats(2);
    const float* normalisers = of.matrix(args, 3, of.heads);
    float* dqkv = of.matrix(args, 5, 3 * of.width);
    const int64_t t = of.block, d = of.size, row = 3 * of.width;
    int64_t floats = 2 * d * padded(t) + 5 * t * padded(d) + BAND * (2 * padded(t) + padded(d));
    of.each(5, floats, [&](int64_t first, int64_t head, Panels memory) {
        const int64_t at = first * row + head * d, at_y = first * of.width + head * d;
        Panel keys_transposed = memory.next(d, t), values_transposed = memory.next(d, t);
        Panel queries = memory.next(t, d), keys = memory.next(t, d), dys = memory.next(t, d);
        Panel dkeys = memory.next(t, d), dvalues = memory.next(t, d), dqueries = memory.next(BAND, d);
        Panel scores = memory.next(BAND, t), dscores = memory.next(BAND, t);
        of.pack(qkv + at, row, t, d, queries);
        of.pack(qkv + at + of.width, row, t, d, keys);
        of.pack_transposed(qkv + at + of.width, row, t, d, keys_transposed);
        of.pack_transposed(qkv + at + 2 * of.width, row, t, d, values_transposed);
        of.pack(dy + at_y, of.width, t, d, dys);
        for (const Panel& sum : {dkeys, dvalues}) std::fill(sum.at, sum.at + t * sum.length, 0.0f);
        for (int64_t begin = 0; begin < t; begin += BAND) {
            int64_t band = std::min(BAND, t - begin), seen = begin + band;
            Panel some_queries = queries.from(begin), some_dys = dys.from(begin);
            DISPATCH(multiply)(some_queries.factor(), keys_transposed, band, padded(seen), d, false, scores);
            DISPATCH(multiply)(some_dys.factor(), values_transposed, band, padded(seen), d, false, dscores);
            for (int64_t i = 0; i < band; ++i) {
                float share = DISPATCH(dot)(some_dys.from(i).at, y + at_y + (begin + i) * of.width, d);
                DISPATCH(score_gradients)(
                    scores.from(i).at, dscores.from(i).at, begin + i + 1, padded(seen), of.scale,
                    normalisers[(first + begin + i) * of.heads + head], share);
                for (const Panel& factors : {scores, dscores}) of.round(factors.from(i).at, seen);
            }
            DISPATCH(multiply)(dscores.factor(), keys, band, padded(d), seen, false, dqueries);
            unpack(dqueries, band, d, dqkv + at + begin * row, row);
            DISPATCH(multiply)(dscores.transposed(), some_queries, seen, padded(d), band, true, dkeys);
            DISPATCH(multiply)(scores.transposed(), some_dys, seen, padded(d), band, true, dvalues);
        }
        unpack(dkeys, t, d, dqkv + at + of.width, row);
        unpack(dvalues, t, d, dqkv + at + 2 * of.width, row);
    });
    return 0;
}
