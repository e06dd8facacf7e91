// The sum of two gradients in bfloat16, where a tensor has two consumers: MindSpore has no such kernel on the CPU.
#include "args.h"
#include "chunks.h"
#include "vector.h"

using namespace msaccel;

#define LOOPS "sum_loops.h"
#include "dispatch.h"

// a, b → their sum, rounded to bfloat16
OPERATOR(sum) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("a sum", 3, 3);
    Dims dims = args.dims(0, ranks[0], Type::bfloat16);
    if (args.dims(1, ranks[0], Type::bfloat16) != dims || args.dims(2, ranks[0], Type::bfloat16) != dims)
        throw Error("the tensors of a sum have other sizes");
    int64_t elements = 1;
    for (int64_t size : dims) elements *= size;
    auto at = [&](int of, int64_t begin) { return static_cast<Bfloat16*>(data[of]) + begin; };
    Chunks({elements}).each([&](int, const Chunks::Chunk& chunk) {
        DISPATCH(sum)(at(0, chunk.begin), at(1, chunk.begin), chunk.size, at(2, chunk.begin));
    });
    return 0;
}
