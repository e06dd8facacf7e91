// Products of matrices in bfloat16, or as if they were.
#pragma once

#include "plan.h"

namespace msaccel {

// c (batch, m, n) = a·b; a is (batch, m, k), or (batch, k, m) if it is transposed, and b (batch, k, n) or (batch, n, k).
// c is in float32.
struct MatrixProduct {
    Products products;
    bool transpose_a, transpose_b;
    int64_t batch, m, n, k;
    Type of_factors = Type::float32;  // the type of a and b, float32 or bfloat16

    void compute(const void* a, const void* b, float* c) const;
};

}  // namespace msaccel
