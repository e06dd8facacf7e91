// GELU by its approximation with tanh (arXiv 1606.08415), as x times a sigmoid of twice that argument:
//
//     s = 1 / (1 + exp(−x (A + B x²))),  y = x · s,  dx = dy · s (1 + x (1 − s) (A + 3 B x²))
//     A = 2 √(2/π),  B = 0.044715 A
#include <limits>

#include "args.h"
#include "chunks.h"
#include "vector.h"

using namespace msaccel;

namespace {

constexpr float A = 1.5957691216f, B = 0.0713548162f;
constexpr float LARGEST = 1e6f;

}  // namespace

#define LOOPS "gelu_loops.h"
#include "dispatch.h"

// x → y, of any shape
OPERATOR(gelu) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("GELU", 2, 2);
    if (args.elements(0) != args.elements(1)) throw Error("the tensors of GELU have other sizes");
    Chunks({args.elements(0)}).each([&](int, const Chunks::Chunk& chunk) {
        DISPATCH(gelu)(args.floats(0) + chunk.begin, chunk.size, args.floats(1) + chunk.begin);
    });
    return 0;
}

// x, dy → dx
OPERATOR(gelu_gradient) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the gradient of GELU", 3, 3);
    if (args.elements(0) != args.elements(1) || args.elements(0) != args.elements(2))
        throw Error("the tensors of GELU's gradient have other sizes");
    Chunks({args.elements(0)}).each([&](int, const Chunks::Chunk& chunk) {
        int64_t at = chunk.begin;
        DISPATCH(gelu_gradient)(args.floats(0) + at, args.floats(1) + at, chunk.size, args.floats(2) + at);
    });
    return 0;
}
