#include "convolution.h"

#include "thread_pool.h"
#include "winograd.h"

namespace msaccel {
namespace {

std::string text(const Dims& dims) {
    std::string joined;
    for (int64_t size : dims) joined += (joined.empty() ? "" : ", ") + std::to_string(size);
    return "(" + joined + ")";
}

std::string text(const Problem& p) {
    return "convolution of " + text(p.x) + " with " + text(p.weight) + " to " + text(p.y) + ", stride " +
           std::to_string(p.stride) + ", padding " + std::to_string(p.padding) + ", dilation " +
           std::to_string(p.dilation) + ", groups " + std::to_string(p.groups);
}

int64_t out_size(int64_t size, int64_t kernel, const Problem& p) {
    int64_t seen = size + 2 * p.padding - p.dilation * (kernel - 1) - 1;
    return seen < 0 ? 0 : seen / p.stride + 1;
}

std::shared_ptr<const Plan> make(Direction direction, const Problem& p, int threads) {
    Concurrency planned_for(threads);
    Dims grouped = p.weight;
    if (p.groups > 1) {
        grouped[0] /= p.groups;
        grouped.insert(grouped.begin(), p.groups);
    }
    Dims bias_dims = {p.y[1]};
    // oneDNN reads and writes blocked tensors in their layout, without a reorder.
    Layout x = p.blocked_x ? blocked(p.x) : any(p.x), y = p.blocked_y ? blocked(p.y) : any(p.y);
    Layout weight = any(grouped);
    Layout bias = p.bias ? any(bias_dims) : nullptr;
    dnnl_dims_t strides = {p.stride, p.stride}, padding = {p.padding, p.padding};
    dnnl_dims_t dilates = {p.dilation - 1, p.dilation - 1};
    Attributes user_scratchpad = attributes();
    std::string what = text(p);

    dnnl_primitive_desc_t made = nullptr;
    check(
        dnnl_convolution_forward_primitive_desc_create(
            &made, engine(), dnnl_forward_training, dnnl_convolution_direct, x.get(), weight.get(), bias.get(), y.get(),
            strides, dilates, padding, padding, user_scratchpad.get()),
        what);
    Description description(made);
    std::vector<Operand> operands;
    auto add = [&](int arg, bool output, const Dims& dims, bool blocked = false) {
        operands.push_back({arg, output, dims, p.half, blocked});
    };
    if (direction == Direction::forward) {
        add(DNNL_ARG_SRC, false, p.x, p.blocked_x);
        add(DNNL_ARG_WEIGHTS, false, grouped);
        if (p.bias) add(DNNL_ARG_BIAS, false, bias_dims);
        add(DNNL_ARG_DST, true, p.y, p.blocked_y);
    } else if (direction == Direction::input_gradient) {
        check(
            dnnl_convolution_backward_data_primitive_desc_create(
                &made, engine(), dnnl_convolution_direct, x.get(), weight.get(), y.get(), strides, dilates, padding,
                padding, description.get(), user_scratchpad.get()),
            "input gradient of a " + what);
        description.reset(made);
        add(DNNL_ARG_DIFF_DST, false, p.y, p.blocked_y);
        add(DNNL_ARG_WEIGHTS, false, grouped);
        add(DNNL_ARG_DIFF_SRC, true, p.x, p.blocked_x);
    } else {
        check(
            dnnl_convolution_backward_weights_primitive_desc_create(
                &made, engine(), dnnl_convolution_direct, x.get(), weight.get(), bias.get(), y.get(), strides, dilates,
                padding, padding, description.get(), user_scratchpad.get()),
            "weight gradient of a " + what);
        description.reset(made);
        add(DNNL_ARG_SRC, false, p.x, p.blocked_x);
        add(DNNL_ARG_DIFF_DST, false, p.y, p.blocked_y);
        add(DNNL_ARG_DIFF_WEIGHTS, true, grouped);
        if (p.bias) add(DNNL_ARG_DIFF_BIAS, true, bias_dims);
    }
    return std::make_shared<const Plan>(std::move(description), std::move(operands), threads);
}

}  // namespace

void Problem::validate() const {
    bool right = stride > 0 && padding >= 0 && dilation > 0 && groups > 0;
    for (const Dims* dims : {&x, &weight, &y}) {
        right = right && dims->size() == 4;
        for (int64_t size : *dims) right = right && size > 0;
    }
    right = right && x[1] % groups == 0 && weight[0] % groups == 0 && weight[1] == x[1] / groups &&
            y == Dims{x[0], weight[0], out_size(x[2], weight[2], *this), out_size(x[3], weight[3], *this)};
    if (!right) throw Error("the shapes do not belong together: " + text(*this));
}

double Problem::operations() const {
    double products = 2;
    for (int64_t size : y) products *= static_cast<double>(size);
    for (size_t i = 1; i < 4; ++i) products *= static_cast<double>(weight[i]);
    return products;
}

void convolve(Direction direction, const Problem& p, const std::vector<void*>& tensors) {
    int threads = threads_for(p.operations());
    if (fits_winograd(direction, p, threads)) return winograd(direction, p, tensors, threads);
    Key key = {static_cast<int64_t>(direction), p.stride, p.padding, p.dilation, p.groups, p.bias, p.half, p.blocked_x,
               p.blocked_y};
    for (const Dims* dims : {&p.x, &p.weight, &p.y}) key.insert(key.end(), dims->begin(), dims->end());
    auto plan = plan_cache().get(key, [&] {
        p.validate();
        return make(direction, p, threads);
    });
    plan->run(tensors);
}

}  // namespace msaccel
