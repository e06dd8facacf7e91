// What an update does with all gradients, in one operator each: their global norm, a step with momentum, and one of Adam.
#include <algorithm>
#include <cmath>

#include "call.h"
#include "team.h"

using namespace msaccel;

#define LOOPS "apply_loops.h"
#include "targets.h"

namespace {

constexpr double OPERATIONS_PER_ELEMENT = 8;
constexpr int64_t PIECE = 1 << 16;  // elements that one thread takes at a time; sums are the same for any threads

// Tensors as one row of pieces, each within a tensor.
struct Pieces {
    struct Piece {
        int tensor;
        int64_t begin, end;
    };
    std::vector<Piece> all;
    int64_t elements = 0;

    Pieces(const Call& call, int first, int tensors) {
        for (int i = first; i < first + tensors; ++i) {
            int64_t size = call.elements(i);
            elements += size;
            for (int64_t at = 0; at < size; at += PIECE) all.push_back({i, at, std::min(at + PIECE, size)});
        }
    }

    template <typename Work>
    void each(const Work& work) const {
        int count = static_cast<int>(all.size());
        int threads = std::min(count, threads_for(OPERATIONS_PER_ELEMENT * static_cast<double>(elements)));
        team(threads)->parallel_for(threads, [&](int part, int of) {
            for (int i = count * part / of; i < count * (part + 1) / of; ++i) work(i);
        });
    }
};

}  // namespace

// gradients → √ Σ g²
EXPORTED int msaccel_global_norm(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("the global norm", 2, 1 << 20);
    Pieces pieces(call, 0, count - 1);
    std::vector<double> sums(pieces.all.size());
    pieces.each([&](int i) {
        const Pieces::Piece& piece = pieces.all[i];
        sums[i] = WIDEST(squares)(static_cast<float*>(data[piece.tensor]) + piece.begin, piece.end - piece.begin);
    });
    double total = 0;
    for (double sum : sums) total += sum;
    *static_cast<float*>(data[count - 1]) = static_cast<float>(std::sqrt(total));
    return 0;
}

// The tensors of a step: how many weights there are, and that everything of a weight has its size.
static int weights_of(const Call& call, const char* name, int before, int groups) {
    int tensors = (call.count - before - 1) / groups, all = before + groups * tensors + 1;
    call.must_have(name, all, all);
    for (int i = before; i < before + groups * tensors; ++i)
        if (call.elements(i) != call.elements(before + (i - before) % tensors))
            throw Error(std::string("in ") + name + " a gradient has another size than its weight");
    return tensors;
}

// rate, (momentum, decay of each weight), gradients, weights, velocities → 1; the last two are changed where they lie
EXPORTED int msaccel_momentum(int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    int tensors = weights_of(call, "a step with momentum", 2, 3);
    if (call.dims(1, 1, false)[0] != 1 + tensors) throw Error("a step with momentum has one decay for each weight");
    float rate = *static_cast<float*>(data[0]);
    const float *momentum = static_cast<float*>(data[1]), *decays = momentum + 1;
    Pieces pieces(call, 2, tensors);
    pieces.each([&](int i) {
        const Pieces::Piece& piece = pieces.all[i];
        auto at = [&](int group) { return static_cast<float*>(data[piece.tensor + group * tensors]) + piece.begin; };
        WIDEST(step)(at(0), piece.end - piece.begin, rate, *momentum, decays[piece.tensor - 2], at(1), at(2));
    });
    *static_cast<float*>(data[count - 1]) = 1;
    return 0;
}

// rate, (β₁, β₂, ε, whether decay is decoupled, decay of each weight), β₁ᵗ, β₂ᵗ, gradients, weights, first moments,
// second moments → 1; all behind the gradients and both powers are changed where they lie
EXPORTED int msaccel_adam(int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    int tensors = weights_of(call, "a step of Adam", 4, 4);
    if (call.dims(1, 1, false)[0] != 4 + tensors) throw Error("a step of Adam has one decay for each weight");
    const float* numbers = static_cast<float*>(data[1]);
    float beta1 = numbers[0], beta2 = numbers[1], epsilon = numbers[2];
    bool decoupled = numbers[3] != 0;
    float *power1 = static_cast<float*>(data[2]), *power2 = static_cast<float*>(data[3]);
    *power1 *= beta1;
    *power2 *= beta2;
    float rate = *static_cast<float*>(data[0]), corrected = rate * std::sqrt(1 - *power2) / (1 - *power1);
    Pieces pieces(call, 4, tensors);
    pieces.each([&](int i) {
        const Pieces::Piece& piece = pieces.all[i];
        auto at = [&](int group) { return static_cast<float*>(data[piece.tensor + group * tensors]) + piece.begin; };
        float decay = numbers[piece.tensor];
        WIDEST(adam)(
            at(0), piece.end - piece.begin, corrected, beta1, beta2, epsilon, decoupled ? 0 : decay,
            decoupled ? 1 - rate * decay : 1, at(1), at(2), at(3));
    });
    *static_cast<float*>(data[count - 1]) = 1;
    return 0;
}
