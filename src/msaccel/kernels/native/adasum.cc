// Adasum of two sets of tensors, and the steps before and after it: each part's own, taken back, and the common one.
#include <vector>

#include "call.h"
#include "pieces.h"

using namespace msaccel;

#define LOOPS "adasum_loops.h"
#include "targets.h"

namespace {

struct Tensors {
    const float *a, *b;
    float* sum;
};

// 1 − dot / 2·square, and 1 for a zero vector, whose dot product is zero too.
double keep(double dot, double square) { return square == 0 ? 1 : 1 - dot / (2 * square); }

void combine(const std::vector<Tensors>& tensors, const std::vector<int64_t>& sizes) {
    Pieces pieces(sizes);
    std::vector<double> parts(3 * pieces.all.size()), sums(3 * sizes.size()), factors(2 * sizes.size());
    pieces.each([&](int i, const Pieces::Piece& piece) {
        const Tensors& of = tensors[piece.tensor];
        WIDEST(products)(of.a + piece.begin, of.b + piece.begin, piece.size, &parts[3 * i]);
    });
    for (size_t i = 0; i < parts.size(); ++i) sums[3 * pieces.all[i / 3].tensor + i % 3] += parts[i];
    for (size_t i = 0; i < sizes.size(); ++i)
        for (int side = 0; side < 2; ++side) factors[2 * i + side] = keep(sums[3 * i], sums[3 * i + 1 + side]);
    pieces.each([&](int, const Pieces::Piece& piece) {
        const Tensors& of = tensors[piece.tensor];
        const double* factor = &factors[2 * piece.tensor];
        WIDEST(weighted)(
            of.a + piece.begin, factor[0], of.b + piece.begin, factor[1], piece.size, of.sum + piece.begin);
    });
}

}  // namespace

// those of a, those of b → the combined ones
EXPORTED int msaccel_adasum(int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    int tensors = call.tensors_of("Adasum", 0, 3, 0);
    std::vector<Tensors> all;
    for (int i = 0; i < tensors; ++i)
        all.push_back({call.floats(i), call.floats(tensors + i), call.floats(2 * tensors + i)});
    combine(all, call.sizes(0, tensors));
    return 0;
}

// a and b as the rows of (2, n), sizes of the tensors that lie one after the other in a row → the combined row (n,)
EXPORTED int msaccel_adasum_rows(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("Adasum of rows", 3, 3);
    int64_t length = call.elements(2), tensors = shapes[1][0], at = 0;
    const int32_t* lengths = call.numbers(1, tensors);
    std::vector<Tensors> all;
    for (int64_t i = 0; i < tensors; at += lengths[i++])
        all.push_back({call.floats(0) + at, call.floats(0) + length + at, call.floats(2) + at});
    if (call.elements(0) != 2 * length || at != length) throw Error("Adasum of rows has tensors of other sizes");
    combine(all, {lengths, lengths + tensors});
    return 0;
}

// bases, weights → bases − weights; the weights become the bases where they lie
EXPORTED int msaccel_take_back(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    int tensors = call.tensors_of("a step taken back", 0, 3, 0);
    Pieces(call.sizes(0, tensors)).each([&](int, const Pieces::Piece& piece) {
        auto at = [&](int group) { return call.floats(group * tensors + piece.tensor) + piece.begin; };
        WIDEST(take_back)(at(0), piece.size, at(1), at(2));
    });
    return 0;
}

// differences, weights, bases → 1; weights and bases become base − difference where they lie
EXPORTED int msaccel_move(int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    int tensors = call.tensors_of("a common step", 0, 3, 1);
    Pieces(call.sizes(0, tensors)).each([&](int, const Pieces::Piece& piece) {
        auto at = [&](int group) { return call.floats(group * tensors + piece.tensor) + piece.begin; };
        WIDEST(move)(at(0), piece.size, at(1), at(2));
    });
    *call.floats(count - 1) = 1;
    return 0;
}
