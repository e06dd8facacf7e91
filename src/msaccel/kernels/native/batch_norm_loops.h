// Passes of batch normalisation over the contiguous elements of a group, in float32 or bfloat16.

#include "vector_loops.h"

INLINE void add(const Sum& lanes, double* sums) {
    for (int lane = 0; lane < LANES; ++lane) sums[lane] += lanes[lane];
}

template <typename Element>
void sum(const Element* x, int64_t count, double* sums) {
    for (int64_t begin = 0; begin < count; begin += LONGEST) {
        Sum total;
        each_vector(begin, std::min(begin + LONGEST, count), [&](int64_t i, int64_t n) INLINED {
            Vector value;
            load(x + i, n, 0, value);
            total += value;
        });
        add(total, sums);
    }
}

template <typename Element>
void sum_squares(const Element* x, int64_t count, const Vector& mean, double* sums) {
    for (int64_t begin = 0; begin < count; begin += LONGEST) {
        Sum total;
        each_vector(begin, std::min(begin + LONGEST, count), [&](int64_t i, int64_t n) INLINED {
            Vector value;
            load(x + i, n, 0, value);
            value -= mean;
            if (n < LANES) keep_first(n, value);
            total += value * value;
        });
        add(total, sums);
    }
}

// y = x · scale + shift [+ added], then a ReLU if `relu`. NaN stays NaN.
template <bool relu, bool adds, typename Element>
INLINE void normalise_as(
    const Element* x, const Element* added, int64_t count, Vector scale, Vector shift, Element* y) {
    each_vector(0, count, [&](int64_t i, int64_t n) INLINED {
        Vector value, other;
        load(x + i, n, 0, value);
        value = value * scale + shift;
        if (adds) {
            load(added + i, n, 0, other);
            value += other;
        }
        if (relu) keep_positive(value, value);
        store(value, n, y + i);
    });
}

template <typename Element>
void normalise(
    const Element* x, const Element* added, bool relu, int64_t count, const Vector& scale, const Vector& shift,
    Element* y) {
    if (relu && added) return normalise_as<true, true>(x, added, count, scale, shift, y);
    if (relu) return normalise_as<true, false>(x, added, count, scale, shift, y);
    if (added) return normalise_as<false, true>(x, added, count, scale, shift, y);
    normalise_as<false, false>(x, added, count, scale, shift, y);
}

// g ← dy where y > 0 or y is NaN, else 0. Without y its sign is computed: y > 0 where x · scale + shift > 0.
template <bool relu, typename Element>
INLINE void relu_gradient(
    const Element* dy, const Element* y, const Vector& x, int64_t n, const Vector& scale, const Vector& shift,
    Vector& g) {
    load(dy, n, 0, g);
    if (!relu) return;
    Vector sign;
    if (y)
        load(y, n, 0, sign);
    else
        sign = x * scale + shift;
    keep_positive(sign, g);
}

// Adds g and g (x − mean) to the sums; stores g too if a tensor was added in the forward pass.
template <bool relu, typename Element>
INLINE void sum_gradient_as(
    const Element* dy, const Element* x, const Element* y, int64_t count, Backward& b, Element* dadded) {
    const Vector mean = b.mean, scale = b.scale, shift = b.shift;
    for (int64_t begin = 0; begin < count; begin += LONGEST) {
        Sum gradients, products;
        each_vector(begin, std::min(begin + LONGEST, count), [&](int64_t i, int64_t n) INLINED {
            Vector value, g;
            load(x + i, n, 0, value);
            relu_gradient<relu>(dy + i, y ? y + i : nullptr, value, n, scale, shift, g);
            gradients += g;
            products += g * (value - mean);
            if (dadded) store(g, n, dadded + i);
        });
        add(gradients, b.gradients);
        add(products, b.products);
    }
}

template <typename Element>
void sum_gradient(
    const Element* dy, const Element* x, const Element* y, bool relu, int64_t count, Backward& b, Element* dadded) {
    relu ? sum_gradient_as<true>(dy, x, y, count, b, dadded) : sum_gradient_as<false>(dy, x, y, count, b, dadded);
}

// dx = scale · g + by_x · (x − mean) + constant
template <bool relu, typename Element>
INLINE void input_gradient_as(
    const Element* dy, const Element* x, int64_t count, const Backward& b, Vector by_x, Vector constant, Element* dx) {
    const Vector mean = b.mean, scale = b.scale, shift = b.shift;
    each_vector(0, count, [&](int64_t i, int64_t n) INLINED {
        Vector value, g;
        load(x + i, n, 0, value);
        relu_gradient<relu, Element>(dy + i, nullptr, value, n, scale, shift, g);
        store(scale * g + (by_x * (value - mean) + constant), n, dx + i);
    });
}

template <typename Element>
void input_gradient(
    const Element* dy, const Element* x, bool relu, int64_t count, const Backward& b, const Vector& by_x,
    const Vector& constant, Element* dx) {
    relu ? input_gradient_as<true>(dy, x, count, b, by_x, constant, dx)
         : input_gradient_as<false>(dy, x, count, b, by_x, constant, dx);
}
