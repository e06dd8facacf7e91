// Adasum of two sets of tensors, and the weight updates around it: reverting each part's own step before, and applying
// the combined step after.
#include <vector>

#include "args.h"
#include "chunks.h"

using namespace msaccel;

#define LOOPS "adasum_loops.h"
#include "dispatch.h"

namespace {

struct Tensors {
    const float *a, *b;
    float* sum;
};

// Weight of a vector in the sum: 1 − dot / (2·square), and 1 for a zero vector, whose dot product is zero too.
double share_kept(double dot, double square) { return square == 0 ? 1 : 1 - dot / (2 * square); }

void combine(const std::vector<Tensors>& tensors, const std::vector<int64_t>& sizes) {
    Chunks chunks(sizes);
    std::vector<double> parts(3 * chunks.all.size()), sums(3 * sizes.size()), factors(2 * sizes.size());
    chunks.each([&](int i, const Chunks::Chunk& chunk) {
        const Tensors& of = tensors[chunk.tensor];
        DISPATCH(products)(of.a + chunk.begin, of.b + chunk.begin, chunk.size, &parts[3 * i]);
    });
    for (size_t i = 0; i < parts.size(); ++i) sums[3 * chunks.all[i / 3].tensor + i % 3] += parts[i];
    for (size_t i = 0; i < sizes.size(); ++i)
        for (int side = 0; side < 2; ++side) factors[2 * i + side] = share_kept(sums[3 * i], sums[3 * i + 1 + side]);
    chunks.each([&](int, const Chunks::Chunk& chunk) {
        const Tensors& of = tensors[chunk.tensor];
        const double* factor = &factors[2 * chunk.tensor];
        DISPATCH(weighted_sum)(
            of.a + chunk.begin, factor[0], of.b + chunk.begin, factor[1], chunk.size, of.sum + chunk.begin);
    });
}

}  // namespace

// tensors of a, tensors of b → combined tensors
OPERATOR(adasum) {
    Args args{count, data, ranks, shapes, types};
    int tensors = args.tensors_of("Adasum", 0, 3, 0);
    std::vector<Tensors> all;
    for (int i = 0; i < tensors; ++i)
        all.push_back({args.floats(i), args.floats(tensors + i), args.floats(2 * tensors + i)});
    combine(all, args.sizes(0, tensors));
    return 0;
}

// a and b as the rows of (2, n), sizes of the tensors concatenated in a row (int32) → the combined row (n,)
OPERATOR(adasum_rows) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("Adasum of rows", 3, 3);
    int64_t length = args.elements(2), tensors = shapes[1][0], at = 0;
    const int32_t* lengths = args.numbers(1, tensors);
    std::vector<Tensors> all;
    for (int64_t i = 0; i < tensors; at += lengths[i++])
        all.push_back({args.floats(0) + at, args.floats(0) + length + at, args.floats(2) + at});
    if (args.elements(0) != 2 * length || at != length) throw Error("Adasum of rows has tensors of other sizes");
    combine(all, {lengths, lengths + tensors});
    return 0;
}

// bases, weights → bases − weights; the weights are set to the bases in place
OPERATOR(revert_to_base) {
    Args args{count, data, ranks, shapes, types};
    int tensors = args.tensors_of("a step taken back", 0, 3, 0);
    Chunks(args.sizes(0, tensors)).each([&](int, const Chunks::Chunk& chunk) {
        auto at = [&](int group) { return args.floats(group * tensors + chunk.tensor) + chunk.begin; };
        DISPATCH(revert_to_base)(at(0), chunk.size, at(1), at(2));
    });
    return 0;
}

// differences, weights, bases → 1; weights and bases are set to base − difference in place
OPERATOR(step_from_base) {
    Args args{count, data, ranks, shapes, types};
    int tensors = args.tensors_of("a common step", 0, 3, 1);
    Chunks(args.sizes(0, tensors)).each([&](int, const Chunks::Chunk& chunk) {
        auto at = [&](int group) { return args.floats(group * tensors + chunk.tensor) + chunk.begin; };
        DISPATCH(step_from_base)(at(0), chunk.size, at(1), at(2));
    });
    *args.floats(count - 1) = 1;
    return 0;
}
