// The loop of a sum of two tensors in bfloat16.
#include "vector_loops.h"

void sum(const Bfloat16* a, const Bfloat16* b, int64_t count, Bfloat16* to) {
    each_vector(0, count, [&](int64_t i, int64_t n) INLINED {
        Vector first, second;
        load(a + i, n, 0, first);
        load(b + i, n, 0, second);
        store(first + second, n, to + i);
    });
}
