// Loops of the activations, one vector at a time.
#include "vector_loops.h"
#include "exponential.h"

// What x is multiplied by, and the derivative of their product.
struct Gate {
    Floats value, slope;
};

INLINE Gate gate_of_sigmoid(const Floats& x, const Floats& sigmoid, const Floats& slope) {
    return {sigmoid, sigmoid * (1 + x * (1 - sigmoid) * slope)};
}

template <Activation activation>
INLINE Gate gate(const Floats& x) {
    if constexpr (activation == SILU) {
        return gate_of_sigmoid(x, 1 / (1 + exponential(-x)), Floats{} + 1);
    } else if constexpr (activation == GELU_TANH) {
        // At most so large that no product with it overflows; the sigmoid is 0 or 1 long before.
        Floats square = x * x;
        square = square > LARGEST ? Floats{} + LARGEST : square;
        return gate_of_sigmoid(x, 1 / (1 + exponential(-x * (A + B * square))), A + 3 * B * square);
    } else {
        Floats a = x < 0 ? -x : x, bell = exponential(-a * a * 0.5f), t = 1 / (1 + C * a), tail = Floats{} + TAIL[0];
        for (int i = 1; i < TAIL_TERMS; ++i) tail = tail * t + TAIL[i];
        tail = tail * bell;
        Floats value = x > 0 ? 1 - tail : tail;
        return {value, value + x * bell * DENSITY_AT_0};
    }
}

template <typename Body>
INLINE void each_of(int64_t count, Body body) {
    for (int64_t i = 0; i < count; i += WIDTH) body(i, std::min<int64_t>(WIDTH, count - i));
}

template <Activation activation>
void activate(const float* x, int64_t count, float* y) {
    each_of(count, [&](int64_t i, int64_t n) INLINED {
        Floats value;
        load_floats(x + i, n, value);
        store_floats(value * gate<activation>(value).value, n, y + i);
    });
}

template <Activation activation>
void differentiate(const float* x, const float* dy, int64_t count, float* dx) {
    each_of(count, [&](int64_t i, int64_t n) INLINED {
        Floats value, gradient;
        load_floats(x + i, n, value);
        load_floats(dy + i, n, gradient);
        store_floats(gradient * gate<activation>(value).slope, n, dx + i);
    });
}
