// What MindSpore calls: `ops.Custom(func_type="aot")` passes all inputs, then all outputs.
//
// Errors leave as exceptions, which MindSpore turns into a Python exception with their message.
#include <cstring>

#include "convolution.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace msaccel {
namespace {

// The tensors of one call, read with their types and ranks checked.
struct Call {
    int count;
    void** data;
    const int* ranks;
    int64_t* const* shapes;
    const char* const* types;

    void must_have(const char* name, int fewest, int most) const {
        if (count < fewest || count > most)
            throw Error(
                std::string(name) + " takes " + std::to_string(fewest) + " to " + std::to_string(most) +
                " tensors, not " + std::to_string(count));
    }

    bool half(int of) const {
        if (!std::strcmp(types[of], "float32")) return false;
        if (!std::strcmp(types[of], "float16")) return true;
        throw Error(std::string("a convolution computes in float32 or float16, not ") + types[of]);
    }

    Dims dims(int of, int rank, bool wanted_half) const {
        if (ranks[of] != rank)
            throw Error(
                "tensor " + std::to_string(of) + " has " + std::to_string(ranks[of]) + " dimensions, not " +
                std::to_string(rank));
        if (half(of) != wanted_half)
            throw Error("tensor " + std::to_string(of) + " is of type " + types[of] + ", others are not");
        return Dims(shapes[of], shapes[of] + rank);
    }

    // Stride, padding, dilation and groups stand in an int32 tensor of their own.
    void geometry(int of, Problem& problem) const {
        if (ranks[of] != 1 || shapes[of][0] != 4 || std::strcmp(types[of], "int32"))
            throw Error("stride, padding, dilation and groups are wanted as an int32 tensor of 4");
        const int32_t* values = static_cast<const int32_t*>(data[of]);
        problem.stride = values[0];
        problem.padding = values[1];
        problem.dilation = values[2];
        problem.groups = values[3];
    }
};

}  // namespace
}  // namespace msaccel

using namespace msaccel;

// x, weight, [bias], geometry → y
EXPORTED int msaccel_convolution(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("convolution", 4, 5);
    bool bias = count == 5;
    bool half = call.half(0);
    int last = count - 1;
    Problem problem{call.dims(0, 4, half), call.dims(1, 4, half), call.dims(last, 4, half), 0, 0, 0, 0, bias, half};
    call.geometry(last - 1, problem);
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
    call.geometry(3, problem);
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
    call.geometry(3, problem);
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
