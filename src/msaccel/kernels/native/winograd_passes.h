// Winograd's convolution over whole images, tile by tile. Included once per target behind winograd_loops.h.

constexpr int64_t PAIR = 2 * WIDTH;  // output channels per product
constexpr int64_t TILES_AT_A_TIME = WIDTH == 16 ? 28 : 24;  // their transforms stay in the second-level cache
constexpr int64_t PADDING = 16;      // between positions, which would otherwise share a cache set

// The shape of a matrix of transforms, [position][row][channel].
struct Transforms {
    int64_t rows, channels;

    int64_t position_stride() const { return rows * channels + PADDING; }
    int64_t floats() const { return POSITIONS * position_stride(); }
};

// Images (n, channels / WIDTH, height, width, WIDTH).
struct Plane {
    int64_t height, width;

    explicit Plane(const Dims& x) : height(x[2]), width(x[3]) {}

    int64_t floats() const { return height * width * WIDTH; }
};

// The tiles of 2 × 2 pixels that cover such images; of tensors of other sizes they are the same pixels.
struct Tiles {
    int64_t across, per_image, all;

    explicit Tiles(const Dims& covered)
        : across((covered[3] + 1) / 2), per_image((covered[2] + 1) / 2 * across), all(covered[0] * per_image) {}

    // Calls body(patch of SIDE × SIDE pixels of the plane around a tile, offset of its block of channels, offset of its
    // transform) for `count` tiles and the channels of `transforms`, which begin at channel `begin` of `channels`.
    template <int SIDE, typename Body>
    INLINE void each(
        const Plane& plane, int64_t first, int64_t count, int64_t channels, int64_t begin, const Transforms& transforms,
        Body body) const {
        constexpr int64_t around = (SIDE - 2) / 2;
        for (int64_t t = 0; t < count; ++t) {
            int64_t tile = first + t, block = (tile / per_image * channels + begin) / WIDTH * plane.floats();
            Patch<SIDE> patch(
                tile % per_image / across * 2 - around, tile % across * 2 - around, plane.height, plane.width);
            for (int64_t channel = 0; channel < transforms.channels; channel += WIDTH, block += plane.floats())
                body(patch, block, t * transforms.channels + channel);
        }
    }
};

void transform_tiles(
    const Tiles& tiles, const Plane& plane, int64_t first, int64_t count, const float* x, int64_t channels,
    int64_t begin, const Transforms& transforms, float* v) {
    auto transform = [&](const auto& patch, int64_t block, int64_t at) INLINED {
        transform_image(patch, x + block, v + at, transforms.position_stride());
    };
    tiles.each<4>(plane, first, count, channels, begin, transforms, transform);
}

// y of the tiles `begin` to `end` from x (or dx from dy) and the kernels' transforms u, whose rows are input channels;
// output channels lie in pairs of blocks.
void convolve_tiles(
    const Dims& of_x, const Dims& of_y, int64_t begin, int64_t end, const float* x, const Transforms& kernels,
    const float* u, float* y, float* memory) {
    Tiles tiles(of_y);
    Plane from(of_x), to(of_y);
    int64_t in = kernels.rows, out = kernels.channels;
    Transforms inputs{TILES_AT_A_TIME, in}, outputs{TILES_AT_A_TIME, out};
    float *v = memory, *m = memory + inputs.floats();
    for (int64_t first = begin; first < end; first += TILES_AT_A_TIME) {
        int64_t count = std::min(TILES_AT_A_TIME, end - first);
        transform_tiles(tiles, from, first, count, x, in, 0, inputs, v);
        for (int64_t position = 0; position < POSITIONS; ++position)
            for (int64_t channel = 0; channel < out; channel += PAIR)
                product(
                    count, channel + WIDTH < out, v + position * inputs.position_stride(), in, 1,
                    u + position * kernels.position_stride() + channel * in, std::min(PAIR, out - channel), in, false,
                    m + position * outputs.position_stride() + channel, out);
        tiles.each<2>(to, first, count, out, 0, outputs, [&](const auto& patch, int64_t block, int64_t at) INLINED {
            transform_back(m + at, outputs.position_stride(), patch, y + block);
        });
    }
}

// y = x ⋆ w; or, `backward`, dx from dy: the same with input and output channels swapped and the kernels reversed.
void convolve_images(
    const Problem& p, bool backward, const float* from, const float* weight, float* to, Scratch& scratch, int threads) {
    int64_t into = p.weight[1] * TAPS;  // floats between consecutive output channels of the weight
    int64_t in = p.weight[backward ? 0 : 1], out = p.weight[backward ? 1 : 0];
    int64_t of_in = backward ? into : TAPS, of_out = backward ? TAPS : into;
    Transforms kernels{in, out};
    int64_t of_tiles = Transforms{TILES_AT_A_TIME, in}.floats() + Transforms{TILES_AT_A_TIME, out}.floats();
    float* u = scratch.floats(kernels.floats() + threads * of_tiles);
    auto transform = [&](int64_t block, int64_t k) {
        int64_t channel = block * WIDTH, pair = channel / PAIR * PAIR, width = std::min(PAIR, out - pair);
        transform_kernels(
            weight + channel * of_out + k * of_in, of_out, backward, u + pair * in + k * width + channel - pair,
            kernels.position_stride());
    };
    thread_pool(threads)->parallel_for(threads, [&](int part, int of) {  // in the weight's order in memory
        int64_t blocks = out / WIDTH;
        if (backward) {
            for (int64_t k = in * part / of; k < in * (part + 1) / of; ++k)
                for (int64_t block = 0; block < blocks; ++block) transform(block, k);
        } else {
            for (int64_t block = blocks * part / of; block < blocks * (part + 1) / of; ++block)
                for (int64_t k = 0; k < in; ++k) transform(block, k);
        }
        _mm_sfence();  // so that other threads see what was written past the caches
    });
    const Dims &of_from = backward ? p.y : p.x, &of_to = backward ? p.x : p.y;
    int64_t tiles = Tiles(of_to).all;
    thread_pool(threads)->parallel_for(threads, [&](int part, int of) {
        int64_t begin = tiles * part / of, end = tiles * (part + 1) / of;
        convolve_tiles(of_from, of_to, begin, end, from, kernels, u, to, u + kernels.floats() + part * of_tiles);
    });
}

// The weight's gradient for the `sums.rows` input channels from `begin` on, over all images.
void gradient_of_channels(
    const Problem& p, const float* x, const float* dy, int64_t begin, const Transforms& sums, float* dweight,
    float* memory) {
    Tiles tiles(p.y);
    Plane of_x(p.x), of_y(p.y);
    int64_t all = p.x[1], in = sums.rows, out = sums.channels;
    Transforms inputs{TILES_AT_A_TIME, in}, outputs{TILES_AT_A_TIME, out};
    float *v = memory, *d = v + inputs.floats(), *s = d + outputs.floats();
    for (int64_t first = 0; first < tiles.all; first += TILES_AT_A_TIME) {
        int64_t count = std::min(TILES_AT_A_TIME, tiles.all - first);
        transform_tiles(tiles, of_x, first, count, x, all, begin, inputs, v);
        tiles.each<2>(of_y, first, count, out, 0, outputs, [&](const auto& patch, int64_t block, int64_t at) INLINED {
            transform_gradient(patch, dy + block, d + at, outputs.position_stride());
        });
        for (int64_t position = 0; position < POSITIONS; ++position)
            for (int64_t channel = 0; channel < out; channel += PAIR)
                product(
                    in, channel + WIDTH < out, v + position * inputs.position_stride(), 1, in,
                    d + position * outputs.position_stride() + channel, out, count, first > 0,
                    s + position * sums.position_stride() + channel, out);
    }
    for (int64_t channel = 0; channel < out; channel += WIDTH)
        for (int64_t k = 0; k < in; ++k)
            transform_kernels_back(
                s + k * out + channel, sums.position_stride(), dweight + (channel * all + begin + k) * TAPS,
                all * TAPS);
}

void weight_gradient(
    const Problem& p, const float* x, const float* dy, float* dweight, Scratch& scratch, int threads) {
    int64_t blocks = p.x[1] / WIDTH, out = p.y[1], most = (blocks + threads - 1) / threads * WIDTH;
    int64_t of_tiles = Transforms{TILES_AT_A_TIME, most}.floats() + Transforms{TILES_AT_A_TIME, out}.floats();
    int64_t each = of_tiles + Transforms{most, out}.floats();
    float* memory = scratch.floats(threads * each);
    thread_pool(threads)->parallel_for(threads, [&](int part, int of) {
        int64_t begin = blocks * part / of * WIDTH, end = blocks * (part + 1) / of * WIDTH;
        gradient_of_channels(p, x, dy, begin, {end - begin, out}, dweight, memory + part * each);
    });
}
