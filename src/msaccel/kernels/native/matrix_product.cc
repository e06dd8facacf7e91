// Products of matrices as plans of oneDNN, and the operator for batches of them.
#include "matrix_product.h"

#include "args.h"
#include "plan_cache.h"
#include "thread_pool.h"

namespace msaccel {
namespace {

constexpr int64_t KIND = 3;  // in keys of plans, behind the three directions of convolutions

std::shared_ptr<const Plan> make(const MatrixProduct& p, int threads) {
    Concurrency planned_for(threads);
    Multiplication multiplied{p.products};
    Dims dims_a = {p.batch, p.m, p.k}, dims_b = {p.batch, p.k, p.n}, dims_c = {p.batch, p.m, p.n};
    int factor = multiplied.factor();
    auto outer = [](const Dims& dims, bool is_transposed, int type) {
        return is_transposed ? transposed(dims, type) : plain(dims, type);
    };
    // Factors that need not be converted are read where they are: faster than a copy in a layout of oneDNN's choice.
    auto inner = [&](const Dims& dims, bool is_transposed) {
        return p.of_factors == Type::bfloat16 ? outer(dims, is_transposed, factor) : any(dims, factor);
    };
    Layout a = inner(dims_a, p.transpose_a), b = inner(dims_b, p.transpose_b), c = plain(dims_c, dnnl_f32);
    Attributes user_scratchpad = attributes();
    dnnl_primitive_desc_t made = nullptr;
    check(
        dnnl_matmul_primitive_desc_create(
            &made, engine(), a.get(), b.get(), nullptr, c.get(), user_scratchpad.get()),
        "product of matrices");
    Description description(made);
    std::vector<Operand> operands;
    auto add = [&](int arg, const Dims& dims, bool is_transposed, bool output) {
        Type type = output ? Type::float32 : p.of_factors;
        Conversion conversion = multiplied.conversion(type, !output);
        operands.push_back({arg, output, dims, outer(dims, is_transposed, multiplied.tensor(type)), conversion});
    };
    add(DNNL_ARG_SRC, dims_a, p.transpose_a, false);
    add(DNNL_ARG_WEIGHTS, dims_b, p.transpose_b, false);
    add(DNNL_ARG_DST, dims_c, false, true);
    return std::make_shared<const Plan>(std::move(description), std::move(operands), threads);
}

}  // namespace

void MatrixProduct::compute(const void* a, const void* b, float* c) const {
    double operations = 2.0;
    for (int64_t size : {batch, m, n, k}) operations *= static_cast<double>(size);
    int threads = threads_for(operations);
    Key key = {KIND, static_cast<int64_t>(products), static_cast<int64_t>(of_factors), transpose_a, transpose_b};
    key.insert(key.end(), {batch, m, n, k});
    auto plan = plan_cache().get(key, [&] { return make(*this, threads); });
    plan->run({const_cast<void*>(a), const_cast<void*>(b), c});
}

}  // namespace msaccel

using namespace msaccel;

// a (batch, m, k), b (batch, k, n), (whether a and b are transposed, how products are computed) → c (batch, m, n)
OPERATOR(matrix_product) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("a product of matrices", 4, 4);
    const int32_t* numbers = args.numbers(2, 3);
    bool transpose_a = numbers[0], transpose_b = numbers[1];
    Dims a = args.dims(0, 3), b = args.dims(1, 3), c = args.dims(3, 3);
    if (transpose_a) std::swap(a[1], a[2]);
    if (transpose_b) std::swap(b[1], b[2]);
    if (b != Dims{a[0], a[2], c[2]} || c != Dims{a[0], a[1], c[2]})
        throw Error("the shapes of a product of matrices do not belong together");
    MatrixProduct product{products(numbers[2]), transpose_a, transpose_b, a[0], a[1], b[2], a[2]};
    product.compute(args.floats(0), args.floats(1), args.floats(3));
    return 0;
}
