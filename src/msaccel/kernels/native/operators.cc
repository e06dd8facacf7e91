// The convolutions as MindSpore calls them.
#include "call.h"
#include "convolution.h"

using namespace msaccel;

static void geometry(const Call& call, int of, Problem& problem) {
    const int32_t* values = call.numbers(of, 4);
    problem.stride = values[0];
    problem.padding = values[1];
    problem.dilation = values[2];
    problem.groups = values[3];
}

// x, weight, [bias], geometry → y
EXPORTED int msaccel_convolution(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("convolution", 4, 5);
    bool bias = count == 5;
    bool half = call.half(0);
    int last = count - 1;
    Problem problem{call.dims(0, 4, half), call.dims(1, 4, half), call.dims(last, 4, half), 0, 0, 0, 0, bias, half};
    geometry(call, last - 1, problem);
    if (bias && call.dims(2, 1, half)[0] != problem.y[1]) throw Error("the bias has another length than y has channels");
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
    bool half = call.half(0);
    Problem problem{call.dims(4, 4, half), call.dims(1, 4, half), call.dims(0, 4, half), 0, 0, 0, 0, false, half};
    geometry(call, 3, problem);
    convolve(Direction::input_gradient, problem, {data[0], data[1], data[4]});
    return 0;
}

// x, dy, weight (for its shape), geometry → dweight, [dbias]
EXPORTED int msaccel_convolution_weight_gradient(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("the weight gradient of a convolution", 5, 6);
    bool bias = count == 6;
    bool half = call.half(0);
    Problem problem{call.dims(0, 4, half), call.dims(4, 4, half), call.dims(1, 4, half), 0, 0, 0, 0, bias, half};
    geometry(call, 3, problem);
    if (bias && call.dims(5, 1, half)[0] != problem.y[1]) throw Error("the bias has another length than y has channels");
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
