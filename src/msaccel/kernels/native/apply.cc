// What an update does with all gradients, in one operator each: their global norm, and a step with momentum.
#include <algorithm>
#include <cmath>

#include "call.h"
#include "team.h"
#include "vector.h"

using namespace msaccel;

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

VECTORISED double squares(const float* g, int64_t count) {
    double total = 0;
    for (int64_t begin = 0; begin < count; begin += LONGEST) {
        int64_t end = std::min(begin + LONGEST, count), i = begin;
        float lanes[LANES] = {};
        for (; i + LANES <= end; i += LANES)
            for (int lane = 0; lane < LANES; ++lane) lanes[lane] += g[i + lane] * g[i + lane];
        for (int lane = 0; i < end; ++i, ++lane) lanes[lane] += g[i] * g[i];
        for (float lane : lanes) total += lane;
    }
    return total;
}

// v ← μ v + (g + λ w),  w ← w − η v
VECTORISED void step(
    const float* __restrict g, int64_t count, float rate, float momentum, float decay, float* __restrict w,
    float* __restrict v) {
    for (int64_t i = 0; i < count; ++i) {
        float velocity = v[i] * momentum + (g[i] + decay * w[i]);
        v[i] = velocity;
        w[i] -= rate * velocity;
    }
}

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
        sums[i] = squares(static_cast<float*>(data[piece.tensor]) + piece.begin, piece.end - piece.begin);
    });
    double total = 0;
    for (double sum : sums) total += sum;
    *static_cast<float*>(data[count - 1]) = static_cast<float>(std::sqrt(total));
    return 0;
}

// rate, (momentum, decay of each weight), gradients, weights, velocities → 1; the last two are changed where they lie
EXPORTED int msaccel_momentum(int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    int tensors = (count - 3) / 3;
    call.must_have("a step with momentum", 3 + 3 * tensors, 3 + 3 * tensors);
    if (call.dims(1, 1, false)[0] != 1 + tensors) throw Error("a step with momentum has one decay for each weight");
    for (int i = 2; i < 2 + tensors; ++i)
        if (call.elements(i) != call.elements(i + tensors) || call.elements(i) != call.elements(i + 2 * tensors))
            throw Error("a gradient has another size than its weight");
    float rate = *static_cast<float*>(data[0]);
    const float *momentum = static_cast<float*>(data[1]), *decays = momentum + 1;
    Pieces pieces(call, 2, tensors);
    pieces.each([&](int i) {
        const Pieces::Piece& piece = pieces.all[i];
        auto at = [&](int tensor) { return static_cast<float*>(data[tensor]) + piece.begin; };
        step(
            at(piece.tensor), piece.end - piece.begin, rate, *momentum, decays[piece.tensor - 2],
            at(piece.tensor + tensors), at(piece.tensor + 2 * tensors));
    });
    *static_cast<float*>(data[count - 1]) = 1;
    return 0;
}
