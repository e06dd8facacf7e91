// Loops of GELU, one vector at a time.
#include "vector_loops.h"
#include "exponential.h"

template <typename Body>
INLINE void each_of(int64_t count, Body body) {
    for (int64_t i = 0; i < count; i += WIDTH) body(i, std::min<int64_t>(WIDTH, count - i));
}

// The sigmoid s, and the square of x, at most so large that no product with it overflows; s is 0 or 1 long before.
INLINE Floats sigmoid(const Floats& x, Floats& square) {
    square = x * x;
    square = square > LARGEST ? Floats{} + LARGEST : square;
    return 1 / (1 + exponential(-x * (A + B * square)));
}

void gelu(const float* x, int64_t count, float* y) {
    each_of(count, [&](int64_t i, int64_t n) INLINED {
        Floats value, square;
        load_floats(x + i, n, value);
        store_floats(value * sigmoid(value, square), n, y + i);
    });
}

void gelu_gradient(const float* x, const float* dy, int64_t count, float* dx) {
    each_of(count, [&](int64_t i, int64_t n) INLINED {
        Floats value, gradient, square;
        load_floats(x + i, n, value);
        load_floats(dy + i, n, gradient);
        Floats s = sigmoid(value, square);
        store_floats(gradient * (s * (1 + value * (1 - s) * (A + 3 * B * square))), n, dx + i);
    });
}
