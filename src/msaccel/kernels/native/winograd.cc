#include "winograd.h"

#include "scratch.h"
#include "team.h"
#include "vector.h"

#if defined(__x86_64__) && !defined(__clang__)
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f")

namespace msaccel {
namespace {

#include "winograd_loops.h"

constexpr int64_t PAIR = 2 * LANES;      // output channels of a product
constexpr int64_t TILES_AT_A_TIME = 28;  // their transforms should stay in a processor's second cache
constexpr int64_t FEWEST_TILES = 32;     // of a thread, for which the transforms of all kernels pay
constexpr int64_t APART = LANES;         // added between two places, which else fall into one set of a cache

// Numbers [place][row][channel].
struct Places {
    int64_t rows, channels;

    int64_t apart() const { return rows * channels + APART; }
    int64_t floats() const { return PLACES * apart(); }
};

// Pictures (n, channels / 16, height, width, 16) and their tiles of 2 × 2 pixels.
struct Tiles {
    int64_t height, width, across, of_picture, all;

    explicit Tiles(const Dims& x)
        : height(x[2]), width(x[3]), across((width + 1) / 2), of_picture((height + 1) / 2 * across),
          all(x[0] * of_picture) {}

    int64_t plane() const { return height * width * LANES; }

    // body(piece of SIDE × SIDE pixels around a tile, where its block of channels lies, where its transform does) for
    // some tiles and the channels of `places`, which of all `channels` are those from `begin` on.
    template <int SIDE, typename Body>
    INLINE void each(
        int64_t first, int64_t count, int64_t channels, int64_t begin, const Places& places, Body body) const {
        constexpr int64_t around = (SIDE - 2) / 2;
        for (int64_t t = 0; t < count; ++t) {
            int64_t tile = first + t, block = (tile / of_picture * channels + begin) / LANES * plane();
            Piece<SIDE> piece(tile % of_picture / across * 2 - around, tile % across * 2 - around, height, width);
            for (int64_t channel = 0; channel < places.channels; channel += LANES, block += plane())
                body(piece, block, t * places.channels + channel);
        }
    }
};

void transform_tiles(
    const Tiles& tiles, int64_t first, int64_t count, const float* x, int64_t channels, int64_t begin,
    const Places& places, float* v) {
    tiles.each<4>(first, count, channels, begin, places, [&](const auto& piece, int64_t block, int64_t at) INLINED {
        transform_picture(piece, x + block, v + at, places.apart());
    });
}

// y of the tiles `begin` to `end` from x (or dx from dy) and the transforms u of the kernels, whose rows are input
// channels, 32 output channels after 32.
void outcome_of_tiles(
    const Tiles& tiles, int64_t begin, int64_t end, const float* x, const Places& kernels, const float* u, float* y,
    float* memory) {
    int64_t in = kernels.rows, out = kernels.channels;
    Places seen{TILES_AT_A_TIME, in}, made{TILES_AT_A_TIME, out};
    float *v = memory, *m = memory + seen.floats();
    for (int64_t first = begin; first < end; first += TILES_AT_A_TIME) {
        int64_t count = std::min(TILES_AT_A_TIME, end - first);
        transform_tiles(tiles, first, count, x, in, 0, seen, v);
        for (int64_t place = 0; place < PLACES; ++place)
            for (int64_t channel = 0; channel < out; channel += PAIR)
                product(
                    count, channel + LANES < out, v + place * seen.apart(), in, 1,
                    u + place * kernels.apart() + channel * in, std::min(PAIR, out - channel), in, false,
                    m + place * made.apart() + channel, out);
        tiles.each<2>(first, count, out, 0, made, [&](const auto& piece, int64_t block, int64_t at) INLINED {
            transform_back(m + at, made.apart(), piece, y + block);
        });
    }
}

// y = x ⋆ w; or `backward` dx from dy, which is the same with the channels changed over and the kernels turned.
void outcome(
    const Problem& p, bool backward, const float* from, const float* weight, float* to, Scratch& scratch, int threads) {
    int64_t into = p.weight[1] * TAPS;  // floats between two of the first channels of the weight
    int64_t in = p.weight[backward ? 0 : 1], out = p.weight[backward ? 1 : 0];
    int64_t of_in = backward ? into : TAPS, of_out = backward ? TAPS : into;
    Places kernels{in, out};
    int64_t of_tiles = Places{TILES_AT_A_TIME, in}.floats() + Places{TILES_AT_A_TIME, out}.floats();
    float* u = scratch.floats(kernels.floats() + threads * of_tiles);
    auto transform = [&](int64_t block, int64_t k) {
        int64_t channel = block * LANES, pair = channel / PAIR * PAIR, width = std::min(PAIR, out - pair);
        transform_kernels(
            weight + channel * of_out + k * of_in, of_out, backward, u + pair * in + k * width + channel - pair,
            kernels.apart());
    };
    team(threads)->parallel_for(threads, [&](int part, int of) {  // in the order in which the weight lies in memory
        int64_t blocks = out / LANES;
        if (backward) {
            for (int64_t k = in * part / of; k < in * (part + 1) / of; ++k)
                for (int64_t block = 0; block < blocks; ++block) transform(block, k);
        } else {
            for (int64_t block = blocks * part / of; block < blocks * (part + 1) / of; ++block)
                for (int64_t k = 0; k < in; ++k) transform(block, k);
        }
        _mm_sfence();  // what was written past the caches is there for the other threads
    });
    Tiles tiles(p.x);
    team(threads)->parallel_for(threads, [&](int part, int of) {
        int64_t begin = tiles.all * part / of, end = tiles.all * (part + 1) / of;
        outcome_of_tiles(tiles, begin, end, from, kernels, u, to, u + kernels.floats() + part * of_tiles);
    });
}

// The weight's gradient for the input channels from `begin` on, as many as `sums` has rows, over all pictures.
void gradient_of_channels(
    const Problem& p, const float* x, const float* dy, int64_t begin, const Places& sums, float* dweight,
    float* memory) {
    Tiles tiles(p.x);
    int64_t all = p.x[1], in = sums.rows, out = sums.channels;
    Places seen{TILES_AT_A_TIME, in}, made{TILES_AT_A_TIME, out};
    float *v = memory, *d = v + seen.floats(), *s = d + made.floats();
    for (int64_t first = 0; first < tiles.all; first += TILES_AT_A_TIME) {
        int64_t count = std::min(TILES_AT_A_TIME, tiles.all - first);
        transform_tiles(tiles, first, count, x, all, begin, seen, v);
        tiles.each<2>(first, count, out, 0, made, [&](const auto& piece, int64_t block, int64_t at) INLINED {
            transform_gradient(piece, dy + block, d + at, made.apart());
        });
        for (int64_t place = 0; place < PLACES; ++place)
            for (int64_t channel = 0; channel < out; channel += PAIR)
                product(
                    in, channel + LANES < out, v + place * seen.apart(), 1, in, d + place * made.apart() + channel,
                    out, count, first > 0, s + place * sums.apart() + channel, out);
    }
    for (int64_t channel = 0; channel < out; channel += LANES)
        for (int64_t k = 0; k < in; ++k)
            transform_kernels_back(
                s + k * out + channel, sums.apart(), dweight + (channel * all + begin + k) * TAPS, all * TAPS);
}

void weight_gradient(
    const Problem& p, const float* x, const float* dy, float* dweight, Scratch& scratch, int threads) {
    int64_t blocks = p.x[1] / LANES, out = p.y[1], most = (blocks + threads - 1) / threads * LANES;
    int64_t of_tiles = Places{TILES_AT_A_TIME, most}.floats() + Places{TILES_AT_A_TIME, out}.floats();
    int64_t each = of_tiles + Places{most, out}.floats();
    float* memory = scratch.floats(threads * each);
    team(threads)->parallel_for(threads, [&](int part, int of) {
        int64_t begin = blocks * part / of * LANES, end = blocks * (part + 1) / of * LANES;
        gradient_of_channels(p, x, dy, begin, {end - begin, out}, dweight, memory + part * each);
    });
}

}  // namespace

bool fits_winograd(Direction direction, const Problem& p, int threads) {
    if (generation() < 2 || !p.blocked_x || !p.blocked_y || p.bias || p.half) return false;
    if (p.weight[2] != 3 || p.weight[3] != 3 || p.stride != 1 || p.padding != 1 || p.dilation != 1 || p.groups != 1)
        return false;
    if (direction == Direction::weight_gradient) return threads <= p.x[1] / LANES;
    return Tiles(p.x).all >= FEWEST_TILES * threads;
}

void winograd(Direction direction, const Problem& p, const std::vector<void*>& tensors, int threads) {
    static thread_local Scratch scratch;
    auto floats = [&](int i) { return static_cast<float*>(tensors[i]); };
    p.validate();
    if (direction == Direction::weight_gradient)
        return weight_gradient(p, floats(0), floats(1), floats(2), scratch, threads);
    outcome(p, direction == Direction::input_gradient, floats(0), floats(1), floats(2), scratch, threads);
}

}  // namespace msaccel

#pragma GCC pop_options
#else

namespace msaccel {

bool fits_winograd(Direction, const Problem&, int) { return false; }

void winograd(Direction, const Problem&, const std::vector<void*>&, int) {}

}  // namespace msaccel

#endif
