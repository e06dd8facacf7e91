// The convolution operators that MindSpore calls, and what Python asks about the library.
#include "args.h"
#include "convolution.h"

using namespace msaccel;

static Problem read(const Args& args, int x, int weight, int y, int geometry, bool bias) {
    const int32_t* values = args.numbers(geometry, 10);
    Problem problem;
    problem.products = products(values[9]);
    problem.of_x = args.type(x);
    problem.of_y = args.type(y);
    problem.of_weight = problem.products == Products::float32 ? problem.of_x : Type::float32;
    if (problem.products == Products::float32 && (problem.of_x != problem.of_y || problem.of_x == Type::bfloat16))
        throw Error("tensors in bfloat16 are multiplied in bfloat16 alone");
    if ((problem.of_x == Type::float16) != (problem.of_y == Type::float16))
        throw Error("x and y are both in float16, or none is");
    Image from = args.image(x, problem.of_x), to = args.image(y, problem.of_y);
    problem.x = from.dims;
    problem.weight = args.dims(weight, 4, problem.of_weight);
    problem.y = to.dims;
    problem.stride = {values[0], values[1]};
    problem.dilation = {values[2], values[3]};
    problem.groups = values[4];
    problem.before = {values[5], values[7]};
    problem.after = {values[6], values[8]};
    if (values[5] < 0) problem.pad_to_same();
    problem.bias = bias;
    problem.order_x = from.order;
    problem.order_y = to.order;
    return problem;
}

// A geometry is strides, dilations, groups, the zeros at the top, bottom, left and right (-1 stands for
// pad_mode="same"), and how products are computed.

// x, weight, [bias], geometry → y
OPERATOR(convolution) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("convolution", 4, 5);
    bool bias = count == 5;
    int last = count - 1;
    Problem problem = read(args, 0, 1, last, last - 1, bias);
    if (bias && args.dims(2, 1, problem.of_weight)[0] != problem.y[1])
        throw Error("the bias has another length than y has channels");
    std::vector<void*> tensors = {data[0], data[1]};
    if (bias) tensors.push_back(data[2]);
    tensors.push_back(data[last]);
    convolve(Direction::forward, problem, tensors);
    return 0;
}

// dy, weight, x (for its shape), geometry → dx
OPERATOR(convolution_input_gradient) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the input gradient of a convolution", 5, 5);
    Problem problem = read(args, 4, 1, 0, 3, false);
    convolve(Direction::input_gradient, problem, {data[0], data[1], data[4]});
    return 0;
}

// x, dy, weight (for its shape), geometry → dweight, [dbias]
OPERATOR(convolution_weight_gradient) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the weight gradient of a convolution", 5, 6);
    bool bias = count == 6;
    Problem problem = read(args, 0, 4, 1, 3, bias);
    if (bias && args.dims(5, 1, problem.of_weight)[0] != problem.y[1])
        throw Error("the bias has another length than y has channels");
    std::vector<void*> tensors = {data[0], data[1], data[4]};
    if (bias) tensors.push_back(data[5]);
    convolve(Direction::weight_gradient, problem, tensors);
    return 0;
}

// Null if the oneDNN in this process can be used, else the reason why not.
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

// For tests: the capacity of the plan cache and the number of plans in it.
EXPORTED void msaccel_limit_plans(size_t most) { plan_cache().limit(most); }

EXPORTED void msaccel_multiply_tiles(int wanted) { multiplies_tiles() = wanted; }

EXPORTED size_t msaccel_plans() { return plan_cache().size(); }
