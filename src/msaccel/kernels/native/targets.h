// Compiles the file LOOPS for each generation of processors. Included once by a source, which then calls the loops
// through WIDEST(name)(arguments).
#include "vector.h"

namespace {

namespace plain {
#include LOOPS
}

#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2")
namespace avx2 {
#include LOOPS
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f")
namespace avx512 {
#include LOOPS
}
#pragma GCC pop_options

#define WIDEST(name) (generation() == 2 ? avx512::name : generation() == 1 ? avx2::name : plain::name)
#else
#define WIDEST(name) (plain::name)
#endif

}  // namespace
