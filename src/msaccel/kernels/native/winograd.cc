#include "winograd.h"

#include <cstdlib>

#include "team.h"
#include "vector.h"

#if defined(__x86_64__) && !defined(__clang__)
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f")

namespace msaccel {
namespace {

#include "winograd_loops.h"

// Memory of a thread that its next call takes again.
class Scratch {
  public:
    float* at_least(int64_t floats) {
        if (floats > floats_) {
            memory_.reset();
            floats_ = 0;
            memory_.reset(static_cast<float*>(std::aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64)));
            if (!memory_) throw Error("no memory for " + std::to_string(floats * sizeof(float)) + " bytes beside a convolution");
            floats_ = floats;
        }
        return memory_.get();
    }

  private:
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    std::unique_ptr<float, Free> memory_;
    int64_t floats_ = 0;
};

thread_local Scratch of_kernels, of_tiles;

constexpr int64_t PAIR = 2 * LANES;  // output channels of a product
constexpr int64_t TILES_AT_A_TIME = 28;  // their transforms should stay in the second cache
constexpr int64_t APART = LANES;     // between two places, so that they do not fall into one set of the cache

// Pictures (n, channels / 16, height, width, 16) and their tiles of 2 × 2 pixels.
struct Tiles {
    int64_t height, width, across, of_picture, all;

    explicit Tiles(const Dims& x)
        : height(x[2]), width(x[3]), across((width + 1) / 2), of_picture((height + 1) / 2 * across),
          all(x[0] * of_picture) {}

    int64_t picture(int64_t tile) const { return tile / of_picture; }
    int64_t top(int64_t tile) const { return tile % of_picture / across * 2; }
    int64_t left(int64_t tile) const { return tile % across * 2; }
    int64_t plane() const { return height * width * LANES; }

    Piece<2> outcome(int64_t tile) const { return {top(tile), left(tile), height, width}; }

    // Of the channels `begin` to `end`.
    void transform(
        int64_t tile, const float* x, int64_t channels, int64_t begin, int64_t end, float* v, int64_t place) const {
        Piece<4> piece(top(tile) - 1, left(tile) - 1, height, width);
        const float* block = x + (picture(tile) * channels + begin) / LANES * plane();
        for (int64_t channel = begin; channel < end; channel += LANES, block += plane())
            transform_picture(piece, block, v + channel - begin, place);
    }
};

// y from x (or dx from dy), with `in` and `out` channels and the transformed kernels u [place][out / 32][in][32].
void from_tiles(
    const Tiles& tiles, int64_t begin, int64_t end, int64_t in, int64_t out, const float* x, const float* u, float* y) {
    int64_t most = TILES_AT_A_TIME;
    int64_t v_place = most * in + APART, m_place = most * out + APART;
    float* v = of_tiles.at_least(PLACES * (v_place + m_place));
    float* m = v + PLACES * v_place;
    int64_t u_place = in * out + APART;
    for (int64_t first = begin; first < end; first += most) {
        int64_t count = std::min(most, end - first);
        for (int64_t t = 0; t < count; ++t) tiles.transform(first + t, x, in, 0, in, v + t * in, v_place);
        for (int64_t place = 0; place < PLACES; ++place)
            for (int64_t channel = 0; channel < out; channel += PAIR)
                product(
                    count, channel + LANES < out, v + place * v_place, in, 1, u + place * u_place + channel * in,
                    std::min(PAIR, out - channel), in, false, m + place * m_place + channel, out);
        for (int64_t t = 0; t < count; ++t) {
            Piece<2> piece = tiles.outcome(first + t);
            float* block = y + tiles.picture(first + t) * out / LANES * tiles.plane();
            for (int64_t channel = 0; channel < out; channel += LANES, block += tiles.plane())
                transform_back(m + t * out + channel, m_place, piece, block);
        }
    }
}

// y = x ⋆ w, or dx from dy: then with the channels changed over and the kernels turned by half a turn.
void outcome(const Problem& p, bool backward, const float* from, const float* weight, float* to, int threads) {
    int64_t in = p.weight[backward ? 0 : 1], out = p.weight[backward ? 1 : 0];
    int64_t of_in = backward ? p.weight[1] * TAPS : TAPS, of_out = backward ? TAPS : p.weight[1] * TAPS;
    int64_t u_place = in * out + APART;
    float* u = of_kernels.at_least(PLACES * u_place);
    auto* workers = team(threads);
    auto transform = [&](int64_t block, int64_t k) {
        int64_t channel = block * LANES, pair = channel / PAIR * PAIR, width = std::min(PAIR, out - pair);
        transform_kernels(
            weight + channel * of_out + k * of_in, of_out, backward, u + pair * in + k * width + channel - pair, u_place);
    };
    workers->parallel_for(threads, [&](int part, int of) {  // in the order in which the kernels lie in memory
        int64_t blocks = out / LANES;
        if (backward) {
            for (int64_t k = in * part / of; k < in * (part + 1) / of; ++k)
                for (int64_t block = 0; block < blocks; ++block) transform(block, k);
        } else {
            for (int64_t block = blocks * part / of; block < blocks * (part + 1) / of; ++block)
                for (int64_t k = 0; k < in; ++k) transform(block, k);
        }
    });
    Tiles tiles(p.x);
    workers->parallel_for(threads, [&](int part, int of) {
        from_tiles(tiles, tiles.all * part / of, tiles.all * (part + 1) / of, in, out, from, u, to);
    });
}

// The gradient of the kernels for the input channels `begin` to `end`, from all pictures.
void kernel_gradient(
    const Problem& p, const float* x, const float* dy, int64_t begin, int64_t end, float* dweight) {
    Tiles tiles(p.x);
    int64_t all = p.x[1], in = end - begin, out = p.y[1], most = TILES_AT_A_TIME;
    int64_t v_place = most * in + APART, d_place = most * out + APART, sum_place = in * out + APART;
    float* v = of_tiles.at_least(PLACES * (v_place + d_place + sum_place));
    float* d = v + PLACES * v_place;
    float* sums = d + PLACES * d_place;
    for (int64_t first = 0; first < tiles.all; first += most) {
        int64_t count = std::min(most, tiles.all - first);
        for (int64_t t = 0; t < count; ++t) {
            tiles.transform(first + t, x, all, begin, end, v + t * in, v_place);
            Piece<2> piece = tiles.outcome(first + t);
            const float* block = dy + tiles.picture(first + t) * out / LANES * tiles.plane();
            for (int64_t channel = 0; channel < out; channel += LANES, block += tiles.plane())
                transform_gradient(piece, block, d + t * out + channel, d_place);
        }
        for (int64_t place = 0; place < PLACES; ++place)
            for (int64_t channel = 0; channel < out; channel += PAIR)
                product(
                    in, channel + LANES < out, v + place * v_place, 1, in, d + place * d_place + channel, out, count,
                    first > 0, sums + place * sum_place + channel, out);
    }
    for (int64_t channel = 0; channel < out; channel += LANES)
        for (int64_t k = 0; k < in; ++k)
            transform_kernels_back(
                sums + k * out + channel, sum_place, dweight + (channel * all + begin + k) * TAPS, all * TAPS);
}

}  // namespace

// Measured on two threads with 16 to 512 channels: the transforms of the kernels pay from 30 tiles a thread on.
bool fits_winograd(Direction direction, const Problem& p, int threads) {
    if (generation() < 2 || !p.blocked_x || !p.blocked_y || p.bias || p.half) return false;
    if (p.weight[2] != 3 || p.weight[3] != 3 || p.stride != 1 || p.padding != 1 || p.dilation != 1 || p.groups != 1)
        return false;
    if (direction == Direction::weight_gradient) return threads <= p.x[1] / LANES;
    return Tiles(p.x).all >= 32 * threads;
}

void winograd(Direction direction, const Problem& p, const std::vector<void*>& tensors, int threads) {
    auto floats = [&](int i) { return static_cast<float*>(tensors[i]); };
    if (direction != Direction::weight_gradient)
        return outcome(p, direction == Direction::input_gradient, floats(0), floats(1), floats(2), threads);
    team(threads)->parallel_for(threads, [&](int part, int of) {
        int64_t blocks = p.x[1] / LANES;
        int64_t begin = blocks * part / of * LANES, end = blocks * (part + 1) / of * LANES;
        kernel_gradient(p, floats(0), floats(1), begin, end, floats(2));
    });
}

}  // namespace msaccel

#pragma GCC pop_options
#endif
