// The convolutions as MindSpore calls them.
#include "call.h"
#include "convolution.h"

using namespace msaccel;

static Problem read(const Call& call, int x, int weight, int y, int geometry, bool bias) {
    const int32_t* values = call.numbers(geometry, 4);
    bool half = call.half(x);
    Picture from = call.picture(x, half), to = call.picture(y, half);
    return {from.dims, call.dims(weight, 4, half), to.dims, values[0],    values[1],  values[2],
            values[3], bias,                       half,    from.blocked, to.blocked};
}

// x, weight, [bias], geometry → y
EXPORTED int msaccel_convolution(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("convolution", 4, 5);
    bool bias = count == 5;
    int last = count - 1;
    Problem problem = read(call, 0, 1, last, last - 1, bias);
    if (bias && call.dims(2, 1, problem.half)[0] != problem.y[1]) throw Error("the bias has another length than y has channels");
    std::vector<void*> tensors = {data[0], data[1]};
    if (bias) tensors.push_back(data[2]);
    tensors.push_back(data[last]);
    convolve(Direction::forward, problem, tensors);
    return 0;
}

// dy, weight, x (for its shape), geometry → dx
EXPORTED int msaccel_convolution_input_gradient(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("the input gradient of a convolution", 5, 5);
    Problem problem = read(call, 4, 1, 0, 3, false);
    convolve(Direction::input_gradient, problem, {data[0], data[1], data[4]});
    return 0;
}

// x, dy, weight (for its shape), geometry → dweight, [dbias]
EXPORTED int msaccel_convolution_weight_gradient(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("the weight gradient of a convolution", 5, 6);
    bool bias = count == 6;
    Problem problem = read(call, 0, 4, 1, 3, bias);
    if (bias && call.dims(5, 1, problem.half)[0] != problem.y[1]) throw Error("the bias has another length than y has channels");
    std::vector<void*> tensors = {data[0], data[1], data[4]};
    if (bias) tensors.push_back(data[5]);
    convolve(Direction::weight_gradient, problem, tensors);
    return 0;
}

// Null if the oneDNN at hand can be used, else why not.
EXPORTED const char* msaccel_obstacle() {
    static std::string reason;
    try {
        check_library();
        return nullptr;
    } catch (const std::exception& error) {
        reason = error.what();
        return reason.c_str();
    }
}

EXPORTED void msaccel_limit_plans(size_t most) { cache().limit(most); }

EXPORTED size_t msaccel_plans() { return cache().size(); }
