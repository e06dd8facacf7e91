// Adasum of many sets of tensors, and the weight updates around it: reverting a part's own step before, and applying
// the combined one after.
#include <memory>
#include <vector>

#include "args.h"
#include "chunks.h"

using namespace msaccel;

#define LOOPS "adasum_loops.h"
#include "dispatch.h"

namespace {

constexpr int64_t PIECE = 1024;  // elements; what all levels make of them stays in the first caches
constexpr int PRODUCTS = 3;      // of a pair: a·b, ‖a‖², ‖b‖²

// A tensor in each of the parts, and where their Adasum goes.
struct Tensor {
    std::vector<const float*> parts;
    float* sum;
};

// Weight of a vector in the sum: 1 − dot / (2·square), and 1 for a zero vector, whose dot product is zero too.
double share_kept(double dot, double square) { return square == 0 ? 1 : 1 - dot / (2 * square); }

int halved(int64_t parts) {
    if (parts < 2 || parts & (parts - 1)) throw Error("Adasum takes a power of two of parts");
    return static_cast<int>(parts);
}

// Adasum over 2^x parts by contiguous halves. Level by level, neighbours become one, rounded to float32. The weights of
// a level need sums over whole tensors of what the level before has made. That is not stored but made again from the
// parts in every pass, piece by piece: x + 1 passes that read, and one tensor that is written.
class Recursion {
  public:
    Recursion(const std::vector<Tensor>& tensors, const std::vector<int64_t>& sizes)
        : tensors_(tensors), chunks_(sizes), parts_(static_cast<int>(tensors[0].parts.size())) {}

    void run() {
        for (int level = 0; pairs(level) > 0; ++level) weigh(level);
        int top = static_cast<int>(weights_.size()) - 1;
        chunks_.each([&](int, const Chunks::Chunk& chunk) {
            each_piece(chunk, top, [&](int64_t begin, int64_t size, const std::vector<const float*>& values) {
                add(chunk.tensor, top, 0, values, size, tensors_[chunk.tensor].sum + begin);
            });
        });
    }

  private:
    int pairs(int level) const { return parts_ >> (level + 1); }

    // The weights of both sides of a pair.
    double* of_pair(int level, int tensor, int pair) { return &weights_[level][2 * (tensor * pairs(level) + pair)]; }

    void add(int tensor, int level, int pair, const std::vector<const float*>& values, int64_t size, float* sum) {
        const double* weights = of_pair(level, tensor, pair);
        DISPATCH(weighted_sum)(values[2 * pair], weights[0], values[2 * pair + 1], weights[1], size, sum);
    }

    // Calls use(first element in the tensor, number of elements, what `level` combines) for all pieces of a chunk.
    template <typename Use>
    void each_piece(const Chunks::Chunk& chunk, int level, const Use& use) {
        std::unique_ptr<float[]> made(new float[parts_ * PIECE]);
        std::vector<const float*> values(parts_);
        for (int64_t begin = chunk.begin, end = chunk.begin + chunk.size; begin < end; begin += PIECE) {
            int64_t size = std::min(PIECE, end - begin);
            for (int part = 0; part < parts_; ++part) values[part] = tensors_[chunk.tensor].parts[part] + begin;
            float* next = made.get();
            for (int below = 0; below < level; ++below)
                for (int pair = 0; pair < pairs(below); ++pair, next += PIECE) {
                    add(chunk.tensor, below, pair, values, size, next);
                    values[pair] = next;
                }
            use(begin, size, values);
        }
    }

    // The weights of a level, from products in float64 that are added chunk by chunk.
    void weigh(int level) {
        int width = PRODUCTS * pairs(level);
        std::vector<double> of_chunks(width * chunks_.all.size()), sums(width * tensors_.size());
        chunks_.each([&](int i, const Chunks::Chunk& chunk) {
            std::vector<double> lanes(LANES * width);
            each_piece(chunk, level, [&](int64_t, int64_t size, const std::vector<const float*>& values) {
                for (int pair = 0; pair < pairs(level); ++pair)
                    DISPATCH(products)(values[2 * pair], values[2 * pair + 1], size, &lanes[LANES * PRODUCTS * pair]);
            });
            for (int k = 0; k < LANES * width; ++k) of_chunks[width * i + k / LANES] += lanes[k];
        });
        for (size_t k = 0; k < of_chunks.size(); ++k)
            sums[width * chunks_.all[k / width].tensor + k % width] += of_chunks[k];
        std::vector<double> weights;
        for (size_t k = 0; k < sums.size(); k += PRODUCTS)
            for (int side = 0; side < 2; ++side) weights.push_back(share_kept(sums[k], sums[k + 1 + side]));
        weights_.push_back(weights);
    }

    const std::vector<Tensor>& tensors_;
    Chunks chunks_;
    int parts_;
    std::vector<std::vector<double>> weights_;  // by level
};

}  // namespace

// number of parts (int32), the tensors of each part → combined tensors
OPERATOR(adasum) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("Adasum", 4, 1 << 20);
    int parts = halved(*args.numbers(0, 1)), tensors = args.tensors_of("Adasum", 1, parts + 1, 0);
    std::vector<Tensor> all(tensors);
    for (int i = 0; i < tensors; ++i) {
        for (int part = 0; part < parts; ++part) all[i].parts.push_back(args.floats(1 + part * tensors + i));
        all[i].sum = args.floats(1 + parts * tensors + i);
    }
    Recursion(all, args.sizes(1, tensors)).run();
    return 0;
}

// parts as the rows of (parts, n), sizes of the tensors concatenated in a row (int32) → the combined row (n,)
OPERATOR(adasum_rows) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("Adasum of rows", 3, 3);
    int64_t parts = halved(args.dims(0, 2)[0]), length = args.elements(2), tensors = shapes[1][0], at = 0;
    const int32_t* lengths = args.numbers(1, tensors);
    std::vector<Tensor> all(tensors);
    for (int64_t i = 0; i < tensors; at += lengths[i++]) {
        for (int64_t part = 0; part < parts; ++part) all[i].parts.push_back(args.floats(0) + part * length + at);
        all[i].sum = args.floats(2) + at;
    }
    if (tensors == 0 || args.elements(0) != parts * length || at != length)
        throw Error("Adasum of rows has tensors of other sizes");
    Recursion(all, {lengths, lengths + tensors}).run();
    return 0;
}

// bases, weights → bases − weights; the weights are set to the bases in place
OPERATOR(revert_to_base) {
    Args args{count, data, ranks, shapes, types};
    int tensors = args.tensors_of("a step taken back", 0, 3, 0);
    Chunks(args.sizes(0, tensors)).each([&](int, const Chunks::Chunk& chunk) {
        auto at = [&](int group) { return args.floats(group * tensors + chunk.tensor) + chunk.begin; };
        DISPATCH(revert_to_base)(at(0), chunk.size, at(1), at(2));
    });
    return 0;
}

// differences, weights → 1; the differences are subtracted from the weights in place
OPERATOR(subtract) {
    Args args{count, data, ranks, shapes, types};
    int tensors = args.tensors_of("a common step", 0, 2, 1);
    Chunks(args.sizes(0, tensors)).each([&](int, const Chunks::Chunk& chunk) {
        auto at = [&](int group) { return args.floats(group * tensors + chunk.tensor) + chunk.begin; };
        DISPATCH(subtract)(at(0), chunk.size, at(1));
    });
    *args.floats(count - 1) = 1;
    return 0;
}
