#include "convolution.h"

#include "depthwise.h"
#include "grouped.h"
#include "im2col.h"
#include "pointwise.h"
#include "side_by_side.h"
#include "thread_pool.h"
#include "winograd.h"

namespace msaccel {
namespace {

std::string text(const Dims& dims) {
    std::string joined;
    for (int64_t size : dims) joined += (joined.empty() ? "" : ", ") + std::to_string(size);
    return "(" + joined + ")";
}

std::string text(const Sides& sides) { return text(Dims(sides.begin(), sides.end())); }

std::string text(const Problem& p) {
    return "convolution of " + text(p.x) + " with " + text(p.weight) + " to " + text(p.y) + ", stride " +
           text(p.stride) + ", padding " + text(p.before) + " and " + text(p.after) + ", dilation " +
           text(p.dilation) + ", groups " + std::to_string(p.groups);
}

int64_t out_size(const Problem& p, int side) {
    int64_t seen = p.x[2 + side] + p.before[side] + p.after[side] - reach(p, side);
    return seen < 0 ? 0 : seen / p.stride[side] + 1;
}

// Whether the rows of the weight's gradient fall into one set of the cache, so that oneDNN's reorder, which writes many
// rows at a time, would evict each before it is complete.
bool in_one_set(const Problem& p) {
    int64_t row = p.weight[1] * p.weight[2] * p.weight[3];
    return p.groups == 1 && p.of_weight == Type::float32 && row % 1024 == 0;
}

// Whether loops of our own may compute this: a weight's gradient in groups, of plain images in float32.
bool sums_groups(Direction direction, const Problem& p) {
    return direction == Direction::weight_gradient && p.groups > 1 && p.order_x == Order::channels_first &&
           p.order_y == Order::channels_first && p.products == Products::float32 && p.of_x == Type::float32 &&
           p.weight[2] * p.weight[3] > 1;
}

std::shared_ptr<const Plan> make(Direction direction, const Problem& p, int threads) {
    Concurrency planned_for(threads);
    Dims grouped = p.weight;
    if (p.groups > 1) {
        grouped[0] /= p.groups;
        grouped.insert(grouped.begin(), p.groups);
    }
    Dims bias_dims = {p.y[1]};
    Multiplication multiplied{p.products};
    int factor = multiplied.factor();
    // oneDNN reads and writes blocks in their layout, without a reorder; for AMX it wants the channels last.
    bool takes_blocks = p.products != Products::bfloat16 || !multiplies_tiles();
    auto laid = [&](const Dims& dims, int type, Order order) {
        bool as_it_is = order == Order::channels_last || (order == Order::blocks && takes_blocks);
        return as_it_is ? images(dims, type, order) : any(dims, type);
    };
    Layout x = laid(p.x, factor, p.order_x), weight = any(grouped, factor);
    int of_y = direction == Direction::forward ? multiplied.tensor(p.of_y) : factor;
    Layout y = laid(p.y, of_y, p.order_y), bias = p.bias ? any(bias_dims, dnnl_f32) : nullptr;
    dnnl_dims_t strides = {p.stride[0], p.stride[1]}, dilates = {p.dilation[0] - 1, p.dilation[1] - 1};
    dnnl_dims_t before = {p.before[0], p.before[1]}, after = {p.after[0], p.after[1]};
    Attributes user_scratchpad = attributes();
    std::string what = text(p);

    dnnl_primitive_desc_t made = nullptr;
    check(
        dnnl_convolution_forward_primitive_desc_create(
            &made, engine(), dnnl_forward_training, dnnl_convolution_direct, x.get(), weight.get(), bias.get(), y.get(),
            strides, dilates, before, after, user_scratchpad.get()),
        what);
    Description description(made);
    std::vector<Operand> operands;
    auto add = [&](int arg, bool output, const Dims& dims, Type type, Order order = Order::channels_first) {
        int seen = multiplied.tensor(type);
        Conversion conversion = multiplied.conversion(type, !output && arg != DNNL_ARG_BIAS);
        operands.push_back({arg, output, dims, images(dims, seen, order), conversion});
    };
    if (direction == Direction::forward) {
        add(DNNL_ARG_SRC, false, p.x, p.of_x, p.order_x);
        add(DNNL_ARG_WEIGHTS, false, grouped, p.of_weight);
        if (p.bias) add(DNNL_ARG_BIAS, false, bias_dims, p.of_weight);
        add(DNNL_ARG_DST, true, p.y, p.of_y, p.order_y);
    } else if (direction == Direction::input_gradient) {
        Layout dx = laid(p.x, multiplied.tensor(p.of_x), p.order_x);
        check(
            dnnl_convolution_backward_data_primitive_desc_create(
                &made, engine(), dnnl_convolution_direct, dx.get(), weight.get(), y.get(), strides, dilates, before,
                after, description.get(), user_scratchpad.get()),
            "input gradient of a " + what);
        description.reset(made);
        add(DNNL_ARG_DIFF_DST, false, p.y, p.of_y, p.order_y);
        add(DNNL_ARG_WEIGHTS, false, grouped, p.of_weight);
        add(DNNL_ARG_DIFF_SRC, true, p.x, p.of_x, p.order_x);
    } else {
        Layout dweight = any(grouped, dnnl_f32);
        check(
            dnnl_convolution_backward_weights_primitive_desc_create(
                &made, engine(), dnnl_convolution_direct, x.get(), dweight.get(), bias.get(), y.get(), strides, dilates,
                before, after, description.get(), user_scratchpad.get()),
            "weight gradient of a " + what);
        description.reset(made);
        add(DNNL_ARG_SRC, false, p.x, p.of_x, p.order_x);
        add(DNNL_ARG_DIFF_DST, false, p.y, p.of_y, p.order_y);
        add(DNNL_ARG_DIFF_WEIGHTS, true, grouped, p.of_weight);
        operands.back().in_one_set = in_one_set(p);
        if (p.bias) add(DNNL_ARG_DIFF_BIAS, true, bias_dims, p.of_weight);
    }
    return std::make_shared<const Plan>(std::move(description), std::move(operands), threads);
}

}  // namespace

int64_t reach(const Problem& p, int side) { return p.dilation[side] * (p.weight[2 + side] - 1) + 1; }

void Problem::pad_to_same() {
    for (int side : {0, 1}) {
        int64_t missing = (y[2 + side] - 1) * stride[side] + reach(*this, side) - x[2 + side];
        before[side] = std::max<int64_t>(missing, 0) / 2;
        after[side] = std::max<int64_t>(missing, 0) - before[side];
    }
}

void Problem::validate() const {
    bool right = groups > 0;
    for (int side : {0, 1})
        right = right && stride[side] > 0 && dilation[side] > 0 && before[side] >= 0 && after[side] >= 0;
    for (const Dims* dims : {&x, &weight, &y}) {
        right = right && dims->size() == 4;
        for (int64_t size : *dims) right = right && size > 0;
    }
    right = right && x[1] % groups == 0 && weight[0] % groups == 0 && weight[1] == x[1] / groups &&
            y == Dims{x[0], weight[0], out_size(*this, 0), out_size(*this, 1)};
    if (!right) throw Error("the shapes do not belong together: " + text(*this));
}

double Problem::operations() const {
    double products = 2;
    for (int64_t size : y) products *= static_cast<double>(size);
    for (size_t i = 1; i < 4; ++i) products *= static_cast<double>(weight[i]);
    return products;
}

void convolve(Direction direction, const Problem& p, const std::vector<void*>& tensors) {
    if (sums_groups(direction, p)) {
        p.validate();
        if (fits_depthwise(p)) return depthwise_weight_gradient(p, tensors);
        if (fits_grouped(p)) return grouped_weight_gradient(p, tensors);
    }
    int threads = threads_for(p.operations());
    if (fits_winograd(direction, p, threads)) return winograd(direction, p, tensors, threads);
    if (fits_pointwise(direction, p)) return convolve_pointwise(direction, p, tensors, threads);
    if (fits_side_by_side(p)) return convolve_side_by_side(direction, p, tensors, threads);
    if (fits_im2col(direction, p)) return im2col(direction, p, tensors, threads);
    convolve_by_onednn(direction, p, tensors);
}

void convolve_by_onednn(Direction direction, const Problem& p, const std::vector<void*>& tensors) {
    Key key = {static_cast<int64_t>(direction), p.groups, p.bias};
    for (Order order : {p.order_x, p.order_y}) key.push_back(static_cast<int64_t>(order));
    for (Type type : {p.of_x, p.of_weight, p.of_y}) key.push_back(static_cast<int64_t>(type));
    key.push_back(static_cast<int64_t>(p.products));
    for (const Sides& sides : {p.stride, p.dilation, p.before, p.after}) key.insert(key.end(), sides.begin(), sides.end());
    for (const Dims* dims : {&p.x, &p.weight, &p.y}) key.insert(key.end(), dims->begin(), dims->end());
    auto plan = plan_cache().get(key, [&] {
        p.validate();
        return make(direction, p, threads_for(p.operations()));
    });
    plan->run(tensors);
}

}  // namespace msaccel
