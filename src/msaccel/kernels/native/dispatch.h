// Compiles the file LOOPS for each generation of processors: baseline, AVX2 and AVX-512. A source includes this once
// and then calls a loop as DISPATCH(name)(arguments), which picks the widest version that the processor supports.
// WIDTH is the number of floats in a vector of the generation: `#pragma GCC target` defines no macro in C++.
#include "vector.h"

namespace {

#define WIDTH 4
namespace plain {
#include LOOPS
}
#undef WIDTH

#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2")
#define WIDTH 8
namespace avx2 {
#include LOOPS
}
#undef WIDTH
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f")
#define WIDTH 16
namespace avx512 {
#include LOOPS
}
#undef WIDTH
#pragma GCC pop_options

#define DISPATCH(name) \
    (generation_of_loops() == 2 ? avx512::name : generation_of_loops() == 1 ? avx2::name : plain::name)
#else
#define DISPATCH(name) (plain::name)
#endif

}  // namespace
