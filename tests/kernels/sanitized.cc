// Drives the operators over some shapes under the sanitizers, as MindSpore would call them; prints "clean" at its end.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../../src/msaccel/kernels/native/thread_pool.h"
#include "../../src/msaccel/kernels/native/vector.h"

extern "C" {
typedef int Operator(int, void**, int*, int64_t**, const char**, void*, void*);
Operator msaccel_convolution, msaccel_convolution_input_gradient, msaccel_convolution_weight_gradient;
Operator msaccel_max_pool, msaccel_max_pool_gradient, msaccel_batch_norm, msaccel_batch_norm_gradient;
Operator msaccel_batch_norm_inference, msaccel_dense, msaccel_dense_input_gradient, msaccel_dense_weight_gradient;
Operator msaccel_cross_entropy, msaccel_cross_entropy_gradient, msaccel_global_norm, msaccel_momentum, msaccel_adam;
Operator msaccel_scale, msaccel_accumulate, msaccel_finite_check, msaccel_matrix_product, msaccel_sum;
Operator msaccel_adasum, msaccel_adasum_rows, msaccel_revert_to_base, msaccel_subtract;
Operator msaccel_momentum_difference, msaccel_adam_difference;
Operator msaccel_lion, msaccel_lars, msaccel_lamb, msaccel_schedule_free_sgd, msaccel_schedule_free_adamw;
Operator msaccel_attention, msaccel_attention_gradient, msaccel_embedding, msaccel_embedding_gradient;
Operator msaccel_gelu, msaccel_gelu_gradient, msaccel_gelu_tanh, msaccel_gelu_tanh_gradient, msaccel_silu;
Operator msaccel_silu_gradient, msaccel_layer_norm, msaccel_layer_norm_gradient;
Operator msaccel_channel_mean, msaccel_channel_mean_gradient, msaccel_channel_scale, msaccel_channel_scale_gradient;
void msaccel_limit_plans(size_t);
void msaccel_multiply_tiles(int);
size_t msaccel_plans();
const char* msaccel_obstacle();
}

struct Tensor {
    std::vector<int64_t> shape;
    const char* type;
    std::vector<char> data;

    Tensor(std::vector<int64_t> sizes, const char* kind, float value = 1) : shape(sizes), type(kind) {
        size_t count = 1;
        for (int64_t size : sizes) count *= size;
        if (kind[0] == 'f' && kind[5] == '3') {
            data.resize(4 * count);
            for (size_t i = 0; i < count; ++i) reinterpret_cast<float*>(data.data())[i] = value;
        } else {
            bool byte = kind[0] == 'u' || kind[1] == 'o';  // uint8, bool
            data.resize((kind[0] == 'i' ? 4 : byte ? 1 : 2) * count);  // zeros
        }
    }
};

static int call(Operator* function, std::vector<Tensor*> tensors) {
    std::vector<void*> data;
    std::vector<int> ranks;
    std::vector<int64_t*> shapes;
    std::vector<const char*> types;
    for (Tensor* tensor : tensors) {
        data.push_back(tensor->data.data());
        ranks.push_back(static_cast<int>(tensor->shape.size()));
        shapes.push_back(tensor->shape.data());
        types.push_back(tensor->type);
    }
    return function(
        static_cast<int>(tensors.size()), data.data(), ranks.data(), shapes.data(), types.data(), nullptr, nullptr);
}

static void convolve(
    int n, int c, int side, int o, int k, int stride, int padding, int dilation, int groups, const char* type,
    int products = 0) {
    int64_t out = (side + 2 * padding - dilation * (k - 1) - 1) / stride + 1;
    Tensor x({n, c, side, side}, type), weight({o, c / groups, k, k}, type), bias({o}, type), y({n, o, out, out}, type);
    Tensor dx(x.shape, type), dweight(weight.shape, type), dbias({o}, type), numbers({10}, "int32");
    int values[] = {stride, stride, dilation, dilation, groups, padding, padding, padding, padding, products};
    std::copy(values, values + 10, reinterpret_cast<int*>(numbers.data.data()));
    call(msaccel_convolution, {&x, &weight, &numbers, &y});
    call(msaccel_convolution, {&x, &weight, &bias, &numbers, &y});
    call(msaccel_convolution_input_gradient, {&y, &weight, &x, &numbers, &dx});
    call(msaccel_convolution_weight_gradient, {&x, &y, &weight, &numbers, &dweight});
    call(msaccel_convolution_weight_gradient, {&x, &y, &weight, &numbers, &dweight, &dbias});
    if (padding == 0 && type[5] == '3') {
        call(msaccel_convolution, {&x, &weight, &bias, &numbers, &y});
        float expected = 1.0f + c / groups * k * k;
        float found = reinterpret_cast<float*>(y.data.data())[0];
        if (std::fabs(found - expected) > 1e-3f) std::abort();
    }
}

// Of pictures, in blocks of channels where these divide.
static std::vector<int64_t> laid(int64_t n, int64_t c, int64_t height, int64_t width) {
    int64_t block = msaccel::block();
    if (c % block) return {n, c, height, width};
    return {n, c / block, height, width, block};
}

static void convolve_blocks(
    int n, int c, int side, int o, int k, int stride, int padding, const char* type = "float32", int products = 0) {
    int64_t out = (side + 2 * padding - k) / stride + 1;
    Tensor x(laid(n, c, side, side), c % msaccel::block() ? "float32" : type), y(laid(n, o, out, out), type), dx(x.shape, x.type);
    Tensor weight({o, c, k, k}, "float32"), dweight(weight.shape, "float32"), numbers({10}, "int32");
    int values[] = {stride, stride, 1, 1, 1, padding, padding, padding, padding, products};
    std::copy(values, values + 10, reinterpret_cast<int*>(numbers.data.data()));
    call(msaccel_convolution, {&x, &weight, &numbers, &y});
    call(msaccel_convolution_input_gradient, {&y, &weight, &x, &numbers, &dx});
    call(msaccel_convolution_weight_gradient, {&x, &y, &weight, &numbers, &dweight});
}

static void gate_channels(int n, int c, int side) {
    Tensor x({n, c, side, side}, "float32"), y(x.shape, "float32"), dx = y, mean({n, c, 1, 1}, "float32", 0), dmean = mean;
    call(msaccel_channel_mean, {&x, &mean});
    if (*reinterpret_cast<float*>(mean.data.data()) != 1) std::abort();
    call(msaccel_channel_mean_gradient, {&mean, &x, &dx});
    call(msaccel_channel_scale, {&x, &mean, &y});
    call(msaccel_channel_scale_gradient, {&y, &x, &mean, &dx, &dmean});
    if (*reinterpret_cast<float*>(dmean.data.data()) != static_cast<float>(side * side)) std::abort();
}

static void dense(int n, int in, int out, int relu, int products = 0) {
    Tensor x({n, in}, "float32"), weight({out, in}, "float32"), bias({out}, "float32"), y({n, out}, "float32");
    Tensor dx(x.shape, "float32"), dweight(weight.shape, "float32"), dbias({out}, "float32"), behind({2}, "int32");
    reinterpret_cast<int*>(behind.data.data())[0] = relu;
    reinterpret_cast<int*>(behind.data.data())[1] = products;
    call(msaccel_dense, {&x, &weight, &bias, &behind, &y});
    if (std::fabs(*reinterpret_cast<float*>(y.data.data()) - (in + 1.0f)) > 1e-3f) std::abort();
    call(msaccel_dense, {&x, &weight, &behind, &y});
    if (std::fabs(*reinterpret_cast<float*>(y.data.data()) - in) > 1e-3f) std::abort();
    call(msaccel_dense_input_gradient, {&y, &y, &weight, &x, &behind, &dx});
    call(msaccel_dense_weight_gradient, {&y, &y, &x, &weight, &behind, &dweight});
    call(msaccel_dense_weight_gradient, {&y, &y, &x, &weight, &behind, &dweight, &dbias});
    Tensor labels({n}, "int32"), smoothing({1}, "float32", 0.1f), loss({1}, "float32"), right({1}, "float32");
    call(msaccel_cross_entropy, {&y, &labels, &smoothing, &loss, &right});
    call(msaccel_cross_entropy_gradient, {&loss, &y, &labels, &smoothing, &y});
    Tensor norm({1}, "float32"), good({1}, "float32"), rate({1}, "float32"), decays({3}, "float32"), done({1}, "float32");
    call(msaccel_global_norm, {&dweight, &dbias, &norm});
    Tensor first({}, "bool"), policy({2}, "int32"), counted({}, "int32"), single({}, "float32"), signals({6}, "float32");
    call(msaccel_scale, {&rate, &dweight, &dbias, &dweight, &dbias});
    call(msaccel_accumulate, {&first, &dweight, &dbias, &weight, &bias, &done});
    call(msaccel_finite_check, {&norm, &single, &policy, &single, &single, &single, &counted, &good, &signals});
    call(msaccel_momentum, {&good, &rate, &decays, &dweight, &dbias, &weight, &bias, &dweight, &dbias, &done});
    Tensor numbers({6}, "float32", 0.5f), squares = dweight, others = dbias;
    call(
        msaccel_adam, {&good, &rate, &numbers, &loss, &right, &dweight, &dbias, &weight, &bias, &dweight, &dbias,
                       &squares, &others, &done});
    Tensor parts({1}, "int32"), moved = dweight, moved_bias = dbias;
    *reinterpret_cast<int*>(parts.data.data()) = 4;
    call(
        msaccel_adasum, {&parts, &dweight, &dbias, &weight, &bias, &dweight, &dbias, &weight, &bias, &squares, &others});
    call(
        msaccel_momentum_difference,
        {&good, &rate, &decays, &dweight, &dbias, &weight, &bias, &squares, &others, &moved, &moved_bias});
    Tensor second = dweight, second_bias = dbias;
    call(
        msaccel_adam_difference, {&good, &rate, &numbers, &loss, &right, &dweight, &dbias, &weight, &bias, &squares,
                                  &others, &second, &second_bias, &moved, &moved_bias});
    auto of = [](int64_t count) { return Tensor({count}, "float32", 0.5f); };
    Tensor for_lion = of(6), for_lars = of(5), for_lamb = of(8), for_sgd = of(6), for_adamw = of(7);
    Tensor *g = &dweight, *gb = &dbias, *w = &weight, *b = &bias, *m = &squares, *mb = &others;
    int failed = call(msaccel_lion, {&good, &rate, &for_lion, g, gb, w, b, m, mb, &done});
    failed += call(msaccel_lars, {&good, &rate, &for_lars, g, gb, w, b, m, mb, &done});
    failed += call(msaccel_lamb, {&good, &rate, &for_lamb, &loss, &right, g, gb, w, b, m, mb, &second, &second_bias,
                                  &done});
    failed += call(msaccel_schedule_free_sgd, {&good, &rate, &for_sgd, &loss, g, gb, w, b, m, mb, &second, &second_bias,
                                               &done});
    failed += call(msaccel_schedule_free_adamw, {&good, &rate, &for_adamw, &loss, &right, g, gb, w, b, m, mb, &second,
                                                 &second_bias, &moved, &moved_bias, &done});
    if (failed) std::abort();
    call(msaccel_revert_to_base, {&dweight, &dbias, &weight, &bias, &squares, &others});
    call(msaccel_subtract, {&squares, &others, &weight, &bias, &done});
    Tensor rows({2, in * out + out}, "float32"), sizes({2}, "int32"), row({in * out + out}, "float32");
    reinterpret_cast<int*>(sizes.data.data())[0] = in * out;
    reinterpret_cast<int*>(sizes.data.data())[1] = out;
    call(msaccel_adasum_rows, {&rows, &sizes, &row});
    if (*reinterpret_cast<float*>(row.data.data()) != 1) std::abort();
}

static void multiply(int batch, int m, int n, int k, int products) {
    for (int transposed : {0, 1, 2}) {
        Tensor a({batch, m, k}, "float32"), b({batch, k, n}, "float32"), c({batch, m, n}, "float32"), how({3}, "int32");
        if (transposed == 1) std::swap(b.shape[1], b.shape[2]);
        if (transposed == 2) std::swap(a.shape[1], a.shape[2]);
        int values[] = {transposed == 2, transposed == 1, products};
        std::copy(values, values + 3, reinterpret_cast<int*>(how.data.data()));
        call(msaccel_matrix_product, {&a, &b, &how, &c});
        if (*reinterpret_cast<float*>(c.data.data()) != static_cast<float>(k)) std::abort();
    }
}

// Layers of a transformer, on `blocks` blocks of `block` characters.
static void transform(int blocks, int block, int heads, int size) {
    int rows = blocks * block, width = heads * size;
    Tensor characters({rows}, "int32"), table({3, width}, "float32"), positions({block, width}, "float32");
    Tensor x({rows, width}, "float32"), y = x, dx = x, dtable = table, dpositions = positions;
    call(msaccel_embedding, {&characters, &table, &positions, &x});
    call(msaccel_embedding_gradient, {&characters, &x, &table, &positions, &dtable, &dpositions});
    if (*reinterpret_cast<float*>(dtable.data.data()) != 2.0f * rows) std::abort();
    Tensor gamma({width}, "float32"), epsilon({1}, "float32"), mean({rows}, "float32"), root = mean;
    Tensor dgamma = gamma, dbeta = gamma;
    call(msaccel_layer_norm, {&x, &gamma, &epsilon, &y, &mean, &root});
    call(msaccel_layer_norm_gradient, {&y, &x, &gamma, &mean, &root, &dx, &dgamma});
    call(msaccel_layer_norm, {&x, &gamma, &gamma, &epsilon, &y, &mean, &root});
    call(msaccel_layer_norm_gradient, {&y, &x, &gamma, &mean, &root, &dx, &dgamma, &dbeta});
    for (Operator* activation : {msaccel_gelu, msaccel_gelu_tanh, msaccel_silu}) call(activation, {&x, &y});
    for (Operator* gradient : {msaccel_gelu_gradient, msaccel_gelu_tanh_gradient, msaccel_silu_gradient})
        call(gradient, {&x, &y, &dx});
    Tensor qkv({rows, 3 * width}, "float32"), dqkv = qkv, normalisers({rows, heads}, "float32"), how({3}, "int32");
    reinterpret_cast<int*>(how.data.data())[0] = heads;
    reinterpret_cast<int*>(how.data.data())[1] = block;
    call(msaccel_attention, {&qkv, &how, &y, &normalisers});
    if (std::fabs(*reinterpret_cast<float*>(y.data.data()) - 1) > 1e-5f) std::abort();
    call(msaccel_attention_gradient, {&y, &y, &qkv, &normalisers, &how, &dqkv});
    reinterpret_cast<int*>(how.data.data())[2] = 2;
    call(msaccel_attention, {&qkv, &how, &y, &normalisers});
    call(msaccel_attention_gradient, {&y, &y, &qkv, &normalisers, &how, &dqkv});
}

static void pool(int n, int c, int height, int width, int k, int stride, int padding, int relu) {
    auto windows = [&](int size) {
        return padding < 0 ? (size + stride - 1) / stride : (size + 2 * padding - k) / stride + 1;
    };
    int64_t rows = windows(height), columns = windows(width);
    Tensor x(laid(n, c, height, width), "float32"), y(laid(n, c, rows, columns), "float32"), taps(y.shape, "uint8");
    Tensor dx(x.shape, "float32"), numbers({4}, "int32");
    int values[] = {k, stride, padding, relu};
    std::copy(values, values + 4, reinterpret_cast<int*>(numbers.data.data()));
    call(msaccel_max_pool, {&x, &numbers, &y, &taps});
    call(msaccel_max_pool_gradient, {&y, &taps, &x, &numbers, &dx});
}

static void normalise(int n, int c, int height, int width, const char* type = "float32") {
    Tensor x(laid(n, c, height, width), type), y(x.shape, type), dx(x.shape, type), more = y;
    Tensor in({c}, "float32"), moving = in, spread = in, mean = in, variance = in, root = in, dgamma = in, dbeta = in;
    Tensor numbers({3}, "float32");
    call(msaccel_batch_norm, {&x, &in, &in, &moving, &spread, &numbers, &y, &mean, &variance, &root});
    call(msaccel_batch_norm_gradient, {&y, &x, &in, &in, &mean, &root, &numbers, &dx, &dgamma, &dbeta});
    call(msaccel_batch_norm, {&x, &in, &in, &moving, &spread, &numbers, &x, &y, &mean, &variance, &root});
    call(
        msaccel_batch_norm_gradient,
        {&y, &x, &in, &in, &mean, &root, &numbers, &y, &dx, &dgamma, &dbeta, &more});
    call(msaccel_batch_norm_inference, {&x, &in, &in, &in, &in, &numbers, &y});
    call(msaccel_batch_norm_inference, {&x, &in, &in, &in, &in, &numbers, &x, &y});
}

template <typename Call>
static void must_throw(Call wrong) {
    try {
        wrong();
    } catch (const std::exception& error) {
        return;
    }
    std::abort();
}

// What a part throws reaches its caller, and later regions, of any thread, are computed in full.
static void throw_in_parts() {
    auto* pool = msaccel::thread_pool(msaccel::job_threads());
    for (int wrong : {0, 1, 2}) {
        must_throw([&] {
            pool->parallel_for(3, [&](int part, int) {
                if (part == wrong) throw std::runtime_error("no memory");
            });
        });
        std::vector<int> done(16);
        std::thread([&] { pool->parallel_for(16, [&](int part, int) { ++done[part]; }); }).join();
        pool->parallel_for(16, [&](int part, int) { ++done[part]; });
        if (std::count(done.begin(), done.end(), 2) != 16 || pool->get_in_parallel()) std::abort();
    }
}

int main() {
    if (msaccel_obstacle()) return 1;
    throw_in_parts();
    msaccel_limit_plans(20);
    auto all = [] {
        for (const char* type : {"float32", "float16"}) {
            convolve(1, 1, 1, 2, 1, 3, 2, 1, 1, type);
            convolve(64, 1, 32, 6, 5, 1, 0, 1, 1, type);  // on several threads
            convolve(2, 6, 14, 16, 5, 1, 0, 1, 1, type);
            convolve(2, 3, 33, 17, 7, 2, 3, 1, 1, type);
            convolve(3, 17, 9, 19, 3, 1, 1, 2, 1, type);
            convolve(2, 24, 11, 24, 3, 2, 1, 1, 24, type);
            convolve(2, 12, 8, 6, 3, 3, 2, 2, 3, type);
            convolve(2, 1024, 5, 37, 1, 1, 0, 1, 1, type);
            convolve(3, 6, 9, 6, 5, 2, 2, 1, 6, type);
            convolve(2, 3, 70, 6, 3, 1, 1, 2, 3, type);  // more pixels than are summed in float32
            convolve(2, 8, 17, 8, 3, 1, 1, 1, 2, type);
            convolve(8, 64, 24, 64, 7, 1, 3, 1, 64, type);
            convolve(20, 35, 5, 35, 5, 2, 2, 1, 35, type);  // 35 is no multiple of a vector's lanes
            convolve(2, 64, 14, 64, 3, 1, 1, 1, 1, type);
            convolve(2, 64, 14, 128, 1, 2, 0, 1, 1, type);
        }
        gate_channels(2, 3, 5);
        gate_channels(8, 64, 40);  // on several threads
        for (int relu : {0, 1}) {
            pool(32, 6, 28, 28, 2, 2, 0, relu);
            pool(1, 3, 2, 2, 4, 2, 1, relu);
            pool(1, 1, 2, 2, 2, 2, 0, relu);
            pool(1, 3, 4, 70, 2, 2, 0, relu);
            pool(2, 3, 9, 7, 3, 2, 1, relu);
            pool(1, 1, 1, 1, 15, 4, 7, relu);
            pool(2, 2, 5, 6, 1, 4, 0, relu);
            pool(2, 3, 9, 8, 3, 2, -1, relu);
            pool(1, 2, 5, 2, 4, 1, -1, relu);
            pool(1, 1, 7, 4, 2, 3, -1, relu);
            pool(1, 2, 5, 40, 3, 1, 1, relu);
            pool(1, 2, 5, 113, 2, 3, 0, relu);
            pool(1, 2, 5, 40, 3, 1, -1, relu);
        }
        pool(2, 32, 9, 7, 3, 2, 1, 1);
        pool(2, 32, 9, 8, 3, 2, -1, 0);
        pool(1, 64, 112, 112, 3, 2, 1, 0);
        convolve_blocks(2, 3, 33, 32, 7, 2, 3);
        convolve_blocks(2, 64, 14, 128, 1, 2, 0);
        convolve_blocks(2, 32, 8, 32, 3, 1, 1);
        convolve_blocks(3, 48, 17, 80, 3, 1, 1);
        for (int relu : {0, 1}) {
            dense(1, 1, 1, relu);
            dense(32, 784, 512, relu);
            dense(5, 7, 3, relu);
        }
        normalise(1, 1, 1, 1);
        normalise(8, 64, 28, 28);
        normalise(4, 40, 33, 31);
        normalise(2, 3, 90, 91);
        normalise(8, 64, 28, 28, "bfloat16");
        normalise(1, 3, 5, 7, "bfloat16");
        for (int products : {__builtin_cpu_supports("avx512bf16") ? 1 : 2, 2}) {
            convolve(3, 17, 9, 19, 3, 1, 1, 2, 1, "float32", products);
            convolve(2, 12, 8, 6, 3, 3, 2, 2, 3, "float32", products);
            convolve_blocks(2, 3, 33, 32, 7, 2, 3, "bfloat16", products);
            convolve_blocks(3, 48, 17, 80, 3, 1, 1, "bfloat16", products);
            convolve_blocks(4, 64, 15, 80, 3, 1, 1, "bfloat16", products);
            convolve_blocks(4, 64, 15, 80, 3, 1, 1, "float32", products);
            convolve_blocks(2, 64, 14, 128, 1, 2, 0, "float32", products);
            dense(33, 7, 5, 1, products);
            multiply(3, 5, 7, 9, products);
        }
        transform(1, 1, 1, 1);
        transform(3, 5, 2, 7);
        transform(2, 64, 4, 32);
        transform(1, 70, 2, 17);
        Tensor odd({3, 1, 67}, "bfloat16");
        call(msaccel_sum, {&odd, &odd, &odd});
    };
    all();
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) threads.emplace_back(all);  // as many as a race has, beside the pool's own
    for (std::thread& thread : threads) thread.join();
    if (msaccel_plans() > 20) return 1;
    if (__builtin_cpu_supports("avx512bf16")) {  // as with AMX
        msaccel_multiply_tiles(1);
        convolve(5, 3, 7, 9, 3, 2, 1, 1, 1, "float32", 1);
        convolve_blocks(6, 32, 4, 48, 3, 1, 1, "bfloat16", 1);
        convolve_blocks(9, 32, 8, 48, 3, 2, 1, "float32", 1);
        convolve_blocks(2, 16, 40, 64, 1, 1, 0, "bfloat16", 1);
        convolve_blocks(4, 32, 40, 64, 1, 2, 0, "bfloat16", 1);
    }
    must_throw([] { convolve(1, 3, 4, 2, 3, 1, 0, 1, 2, "float32"); });
    must_throw([] { convolve(1, 1, 4, 2, 1, 1, 0, 1, 1, "int32"); });
    must_throw([] { pool(1, 1, 4, 4, 16, 1, 8, 0); });
    must_throw([] {
        Tensor x({1, 1, 4, 4, 15}, "float32"), y(x.shape, "float32"), in({15}, "float32"), numbers({3}, "float32");
        call(msaccel_batch_norm_inference, {&x, &in, &in, &in, &in, &numbers, &y});
    });
    must_throw([] {
        Tensor logits({1, 2}, "float32"), labels({1}, "int32"), one({1}, "float32");
        *reinterpret_cast<int*>(labels.data.data()) = 2;
        call(msaccel_cross_entropy, {&logits, &labels, &one, &one, &one});
    });
    must_throw([] { pool(1, 1, 4, 4, 2, 1, 2, 0); });
    must_throw([] {
        Tensor qkv({2, 6}, "float32"), y({2, 2}, "float32"), normalisers = y, no_heads({3}, "int32");
        call(msaccel_attention, {&qkv, &no_heads, &y, &normalisers});
    });
    must_throw([] {
        Tensor characters({1}, "int32"), row({1, 2}, "float32");
        *reinterpret_cast<int*>(characters.data.data()) = 1;
        call(msaccel_embedding, {&characters, &row, &row, &row});
    });
    Tensor few({1, 1}, "float32"), zero({1}, "int32");
    must_throw([&] { call(msaccel_convolution, {&few, &few, &few, &few}); });
    must_throw([&] { call(msaccel_convolution, {&few}); });
    must_throw([&] { call(msaccel_adasum_rows, {&few, &zero, &few}); });
    must_throw([&] { call(msaccel_sum, {&few, &few, &few}); });
    must_throw([&] { call(msaccel_matrix_product, {&few, &few, &zero, &few}); });
    must_throw([] { convolve_blocks(1, 16, 4, 16, 1, 1, 0, "bfloat16"); });
    must_throw([] {
        Tensor x({1, 1, 1, 1}, "float32"), y(x.shape, "float16"), numbers({10}, "int32");
        int values[] = {1, 1, 1, 1, 1, 0, 0, 0, 0, 1};
        std::copy(values, values + 10, reinterpret_cast<int*>(numbers.data.data()));
        call(msaccel_convolution, {&x, &x, &numbers, &y});
    });
    must_throw([] { dense(1, 1, 1, 0, 3); });
    must_throw([&] { call(msaccel_adasum, {&zero, &few, &few, &few}); });
    must_throw([&] { call(msaccel_gelu, {&few, &zero}); });
    must_throw([&] { call(msaccel_attention, {&few, &zero, &few, &few}); });
    must_throw([&] { call(msaccel_layer_norm, {&few, &few, &few, &few, &few, &few}); });
    must_throw([&] { call(msaccel_adasum, {&few, &few, &few, &few}); });
    must_throw([&] { call(msaccel_accumulate, {&few, &few, &few, &few}); });
    std::puts("clean");
}
