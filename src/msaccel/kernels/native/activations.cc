// Activations that multiply x by a gate, y = x · s(x), so dx = dy · (s + x s'):
//
//     GELU (arXiv 1606.08415):    s = Φ(x), s' = φ(x), of the normal distribution
//     GELU's approximation with   s = 1 / (1 + exp(−x (A + B x²))), with x s' = s x (1 − s) (A + 3 B x²)
//     tanh, and SiLU:             A = 2 √(2/π), B = 0.044715 A; for SiLU A = 1, B = 0
//
// Φ(−a) for a ≥ 0 is exp(−a²/2) times a polynomial in 1 / (1 + 0.3 a), within 6e-8 of the ratio for a ≤ 14, where all
// of it underflows. So it is right to a few units in the last place also where 1 + erf would have cancelled.
#include <limits>

#include "args.h"
#include "chunks.h"
#include "vector.h"

using namespace msaccel;

namespace {

enum Activation { GELU, GELU_TANH, SILU };

constexpr float A = 1.5957691216f, B = 0.0713548162f;
constexpr float LARGEST = 1e6f;
constexpr float C = 0.3f, DENSITY_AT_0 = 0.3989422804f;
constexpr int TAIL_TERMS = 9;
constexpr float TAIL[TAIL_TERMS] = {0.0383782834f,  -0.169166088f, 0.228660032f, -0.076506421f, 0.142535493f,
                                    0.0946835354f, 0.12192034f,   0.119487688f, 7.16885552e-06f};

}  // namespace

#define LOOPS "activations_loops.h"
#include "dispatch.h"

namespace {

// x → y, of any shape
template <Activation activation>
int forward(const Args& args) {
    args.must_have("an activation", 2, 2);
    if (args.elements(0) != args.elements(1)) throw Error("the tensors of an activation have other sizes");
    Chunks({args.elements(0)}).each([&](int, const Chunks::Chunk& chunk) {
        DISPATCH(activate<activation>)(args.floats(0) + chunk.begin, chunk.size, args.floats(1) + chunk.begin);
    });
    return 0;
}

// x, dy → dx
template <Activation activation>
int gradient(const Args& args) {
    args.must_have("the gradient of an activation", 3, 3);
    if (args.elements(0) != args.elements(1) || args.elements(0) != args.elements(2))
        throw Error("the tensors of an activation's gradient have other sizes");
    Chunks({args.elements(0)}).each([&](int, const Chunks::Chunk& chunk) {
        int64_t at = chunk.begin;
        DISPATCH(differentiate<activation>)(args.floats(0) + at, args.floats(1) + at, chunk.size, args.floats(2) + at);
    });
    return 0;
}

}  // namespace

OPERATOR(gelu) { return forward<GELU>({count, data, ranks, shapes, types}); }
OPERATOR(gelu_gradient) { return gradient<GELU>({count, data, ranks, shapes, types}); }
OPERATOR(gelu_tanh) { return forward<GELU_TANH>({count, data, ranks, shapes, types}); }
OPERATOR(gelu_tanh_gradient) { return gradient<GELU_TANH>({count, data, ranks, shapes, types}); }
OPERATOR(silu) { return forward<SILU>({count, data, ranks, shapes, types}); }
OPERATOR(silu_gradient) { return gradient<SILU>({count, data, ranks, shapes, types}); }
