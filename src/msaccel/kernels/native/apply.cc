// What an update does with all gradients, in one operator each: their global norm, a product with a number, the sums of
// a window, a step with momentum, and one of Adam. A step that is not good leaves everything as it is.
#include <algorithm>
#include <cmath>

#include "call.h"
#include "pieces.h"

using namespace msaccel;

#define LOOPS "apply_loops.h"
#include "targets.h"

// gradients → √ Σ g²
EXPORTED int msaccel_global_norm(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("the global norm", 2, 1 << 20);
    Pieces pieces(call.sizes(0, count - 1));
    std::vector<double> sums(pieces.all.size());
    pieces.each([&](int i, const Pieces::Piece& piece) {
        sums[i] = WIDEST(squares)(call.floats(piece.tensor) + piece.begin, piece.size);
    });
    double total = 0;
    for (double sum : sums) total += sum;
    *static_cast<float*>(data[count - 1]) = static_cast<float>(std::sqrt(total));
    return 0;
}

// factor, gradients → their products with it
EXPORTED int msaccel_scale(int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    int tensors = call.tensors_of("a product with a number", 1, 2, 0);
    float factor = *call.floats(0);
    Pieces(call.sizes(1, tensors)).each([&](int, const Pieces::Piece& piece) {
        auto at = [&](int group) { return call.floats(1 + group * tensors + piece.tensor) + piece.begin; };
        WIDEST(scale)(at(0), piece.size, factor, at(1));
    });
    return 0;
}

// whether they are the first of a window (bool), gradients, sums → 1; the sums are changed where they lie
EXPORTED int msaccel_add_up(int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    int tensors = call.tensors_of("the sums of a window", 1, 2, 1);
    if (std::strcmp(types[0], "bool")) throw Error("whether gradients open a window is wanted as a bool");
    bool first = *static_cast<bool*>(data[0]);
    Pieces(call.sizes(1, tensors)).each([&](int, const Pieces::Piece& piece) {
        auto at = [&](int group) { return call.floats(1 + group * tensors + piece.tensor) + piece.begin; };
        if (first) return std::copy_n(at(0), piece.size, at(1)), void();
        WIDEST(add)(at(0), piece.size, at(1));
    });
    *call.floats(count - 1) = 1;
    return 0;
}

// good (1 or 0), rate, (momentum, decay of each weight), gradients, weights, velocities → good; the last two are changed
// where they lie
EXPORTED int msaccel_momentum(int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    int tensors = call.tensors_of("a step with momentum", 3, 3, 1);
    if (call.dims(2, 1, false)[0] != 1 + tensors) throw Error("a step with momentum has one decay for each weight");
    if ((*call.floats(count - 1) = *call.floats(0)) == 0) return 0;
    float rate = *call.floats(1);
    const float *momentum = call.floats(2), *decays = momentum + 1;
    Pieces pieces(call.sizes(3, tensors));
    pieces.each([&](int, const Pieces::Piece& piece) {
        auto at = [&](int group) { return call.floats(3 + group * tensors + piece.tensor) + piece.begin; };
        WIDEST(step)(at(0), piece.size, rate, *momentum, decays[piece.tensor], at(1), at(2));
    });
    return 0;
}

// good (1 or 0), rate, (β₁, β₂, ε, whether decay is decoupled, decay of each weight), β₁ᵗ, β₂ᵗ, gradients, weights, first
// moments, second moments → good; all behind the gradients and both powers are changed where they lie
EXPORTED int msaccel_adam(int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    int tensors = call.tensors_of("a step of Adam", 5, 4, 1);
    if (call.dims(2, 1, false)[0] != 4 + tensors) throw Error("a step of Adam has one decay for each weight");
    if ((*call.floats(count - 1) = *call.floats(0)) == 0) return 0;
    const float* numbers = call.floats(2);
    float beta1 = numbers[0], beta2 = numbers[1], epsilon = numbers[2];
    bool decoupled = numbers[3] != 0;
    float *power1 = call.floats(3), *power2 = call.floats(4);
    *power1 *= beta1;
    *power2 *= beta2;
    float rate = *call.floats(1), corrected = rate * std::sqrt(1 - *power2) / (1 - *power1);
    Pieces pieces(call.sizes(5, tensors));
    pieces.each([&](int, const Pieces::Piece& piece) {
        auto at = [&](int group) { return call.floats(5 + group * tensors + piece.tensor) + piece.begin; };
        float decay = numbers[4 + piece.tensor];
        WIDEST(adam)(
            at(0), piece.size, corrected, beta1, beta2, epsilon, decoupled ? 0 : decay,
            decoupled ? 1 - rate * decay : 1, at(1), at(2), at(3));
    });
    return 0;
}
