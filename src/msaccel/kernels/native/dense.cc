// A dense layer, y = x·Wᵀ [+ b], optionally followed by a ReLU: one operator forward and two backward, where MindSpore
// has three and four. With g the gradient of y, with a ReLU 0 where y ≤ 0:
//
//     dx = g·W,  dW = gᵀ·x,  db = Σ g over the batch
#include <vector>

#include "args.h"
#include "matrix_product.h"
#include "thread_pool.h"

using namespace msaccel;

#define LOOPS "dense_loops.h"
#include "dispatch.h"

namespace {

constexpr int64_t MOST_ROWS = 64;

struct Layer {
    int64_t batch, in, out;
    Products products;
    int threads;

    Layer(const Dims& x, const Dims& weight, const Dims& y, Products how)
        : batch(x[0]), in(x[1]), out(weight[0]), products(how) {
        if (weight[1] != in || y != Dims{batch, out}) throw Error("the shapes of a dense layer do not belong together");
        threads = threads_for(2.0 * static_cast<double>(batch) * static_cast<double>(in) * static_cast<double>(out));
    }

    // C (m, n) = A·B; A is (m, k), or (k, m) if it is transposed, and B (k, n) or (n, k).
    void product(
        bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a, const float* b,
        float* c) const {
        if (products != Products::float32)
            return MatrixProduct{products, transpose_a, transpose_b, 1, m, n, k}.compute(a, b, c);
        Concurrency planned_for(threads);
        check(
            dnnl_threadpool_interop_sgemm(
                transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1.0f, a, transpose_a ? m : k, b,
                transpose_b ? k : n, 0, c, n, thread_pool(threads)),
            "product of a dense layer");
    }

    // y = x·Wᵀ, without the bias. For few rows oneDNN spends its time on copying W to its own layout; the loops here
    // read W in place. They need the 32 registers of AVX-512 and are ten times slower with fewer.
    void forward(const float* x, const float* weight, float* y) const {
        if (batch > MOST_ROWS || generation() < 2 || products != Products::float32)
            return product(false, true, batch, out, in, x, weight, y);
        thread_pool(threads)->parallel_for(threads, [&](int part, int of) {
            DISPATCH(product)(x, batch, weight, in, out, out * part / of, out * (part + 1) / of, y);
        });
    }
};

// The gradient behind the ReLU, if there is one, in a buffer of this thread that the next call overwrites.
const float* behind_relu(const Args& args, int dy, int y, bool relu, int64_t count) {
    const float* from = static_cast<const float*>(args.data[dy]);
    if (!relu) return from;
    static thread_local std::vector<float> passed;
    passed.resize(count);
    DISPATCH(relu_gradient)(from, static_cast<const float*>(args.data[y]), count, passed.data());
    return passed.data();
}

}  // namespace

// x (n, i), weight (o, i), [bias (o)], (whether ReLU follows, how products are computed) → y (n, o)
OPERATOR(dense) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("a dense layer", 4, 5);
    int last = count - 1;
    const int32_t* numbers = args.numbers(last - 1, 2);
    Layer layer(args.dims(0, 2), args.dims(1, 2), args.dims(last, 2), products(numbers[1]));
    const float* bias = count == 5 ? args.floats(2) : nullptr;
    if (bias && args.dims(2, 1)[0] != layer.out) throw Error("the bias has another length than y has columns");
    float* y = args.floats(last);
    layer.forward(args.floats(0), args.floats(1), y);
    if (bias || numbers[0]) DISPATCH(add_bias)(bias, layer.batch, layer.out, numbers[0], y);
    return 0;
}

// dy, y, weight, x (for its shape), (whether ReLU follows, how products are computed) → dx
OPERATOR(dense_input_gradient) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the input gradient of a dense layer", 6, 6);
    const int32_t* numbers = args.numbers(4, 2);
    Layer layer(args.dims(5, 2), args.dims(2, 2), args.dims(0, 2), products(numbers[1]));
    const float* g = behind_relu(args, 0, 1, numbers[0], layer.batch * layer.out);
    layer.product(
        false, false, layer.batch, layer.in, layer.out, g, static_cast<float*>(data[2]),
        static_cast<float*>(data[5]));
    return 0;
}

// dy, y, x, weight (for its shape), (whether ReLU follows, how products are computed) → dweight, [dbias]
OPERATOR(dense_weight_gradient) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the weight gradient of a dense layer", 6, 7);
    const int32_t* numbers = args.numbers(4, 2);
    Layer layer(args.dims(2, 2), args.dims(5, 2), args.dims(0, 2), products(numbers[1]));
    bool bias = count == 7;
    if (bias && args.dims(6, 1)[0] != layer.out) throw Error("the bias has another length than y has columns");
    const float* g = behind_relu(args, 0, 1, numbers[0], layer.batch * layer.out);
    layer.product(
        true, false, layer.out, layer.in, layer.batch, g, static_cast<float*>(data[2]),
        static_cast<float*>(data[5]));
    if (bias) DISPATCH(add_rows)(g, layer.batch, layer.out, args.floats(6));
    return 0;
}
