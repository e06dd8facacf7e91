// What an update does with all gradients, in one operator each: their global norm, a step with momentum, and one of Adam.
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

// rate, (momentum, decay of each weight), gradients, weights, velocities → 1; the last two are changed where they lie
EXPORTED int msaccel_momentum(int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    int tensors = call.tensors_of("a step with momentum", 2, 3, 1);
    if (call.dims(1, 1, false)[0] != 1 + tensors) throw Error("a step with momentum has one decay for each weight");
    float rate = *static_cast<float*>(data[0]);
    const float *momentum = static_cast<float*>(data[1]), *decays = momentum + 1;
    Pieces pieces(call.sizes(2, tensors));
    pieces.each([&](int, const Pieces::Piece& piece) {
        auto at = [&](int group) { return call.floats(2 + group * tensors + piece.tensor) + piece.begin; };
        WIDEST(step)(at(0), piece.size, rate, *momentum, decays[piece.tensor], at(1), at(2));
    });
    *static_cast<float*>(data[count - 1]) = 1;
    return 0;
}

// rate, (β₁, β₂, ε, whether decay is decoupled, decay of each weight), β₁ᵗ, β₂ᵗ, gradients, weights, first moments,
// second moments → 1; all behind the gradients and both powers are changed where they lie
EXPORTED int msaccel_adam(int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    int tensors = call.tensors_of("a step of Adam", 4, 4, 1);
    if (call.dims(1, 1, false)[0] != 4 + tensors) throw Error("a step of Adam has one decay for each weight");
    const float* numbers = static_cast<float*>(data[1]);
    float beta1 = numbers[0], beta2 = numbers[1], epsilon = numbers[2];
    bool decoupled = numbers[3] != 0;
    float *power1 = static_cast<float*>(data[2]), *power2 = static_cast<float*>(data[3]);
    *power1 *= beta1;
    *power2 *= beta2;
    float rate = *static_cast<float*>(data[0]), corrected = rate * std::sqrt(1 - *power2) / (1 - *power1);
    Pieces pieces(call.sizes(4, tensors));
    pieces.each([&](int, const Pieces::Piece& piece) {
        auto at = [&](int group) { return call.floats(4 + group * tensors + piece.tensor) + piece.begin; };
        float decay = numbers[4 + piece.tensor];
        WIDEST(adam)(
            at(0), piece.size, corrected, beta1, beta2, epsilon, decoupled ? 0 : decay,
            decoupled ? 1 - rate * decay : 1, at(1), at(2), at(3));
    });
    *static_cast<float*>(data[count - 1]) = 1;
    return 0;
}
