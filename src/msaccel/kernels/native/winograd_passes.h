// Winograd's convolution over whole images, tile by tile. Included once per target behind winograd_products.h.

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

    // Calls body(patch of SIDE × SIDE pixels of the plane around a tile, offset of its block of channels, number of the
    // tile, first channel) for `count` tiles and `width` channels, which begin at channel `begin` of `channels`.
    template <int SIDE, typename Body>
    INLINE void each(
        const Plane& plane, int64_t first, int64_t count, int64_t channels, int64_t begin, int64_t width,
        Body body) const {
        constexpr int64_t around = (SIDE - 2) / 2;
        for (int64_t t = 0; t < count; ++t) {
            int64_t tile = first + t, block = (tile / per_image * channels + begin) / WIDTH * plane.floats();
            Patch<SIDE> patch(
                tile % per_image / across * 2 - around, tile % across * 2 - around, plane.height, plane.width);
            for (int64_t channel = 0; channel < width; channel += WIDTH, block += plane.floats())
                body(patch, block, t, channel);
        }
    }
};

// The factors of two tiles in a row share a place.
INLINE void put_of_tile(const Floats& value, int64_t tile, float* to) {
    put(tile % 2 ? pairs(get(to), value) : value, to);
}

// Which factors share a place in bfloat16, since they belong to consecutive terms of a sum.
enum class Shared { channels, tiles };

// The transforms of `count` tiles of images, and of `width` channels, which begin at `begin` of `channels`.
template <Products HOW, Shared SHARED, typename Pixel>
void transform_tiles(
    const Tiles& tiles, const Plane& plane, int64_t first, int64_t count, const Pixel* x, int64_t channels,
    int64_t begin, int64_t width, const Transforms& transforms, float* v) {
    int64_t stride = transforms.position_stride();
    auto transform = [&](const auto& patch, int64_t block, int64_t t, int64_t channel) INLINED {
        if constexpr (HOW != Products::bfloat16) {
            auto store = [](const Floats& value, float* to) INLINED { put(as_factor<HOW>(value), to); };
            transform_image(patch, x + block, v + t * transforms.channels + channel, stride, store);
        } else if constexpr (SHARED == Shared::channels) {
            auto store = [](const Floats& value, float* to) INLINED { put_halves(value, to); };
            transform_image(patch, x + block, v + t * transforms.channels + channel / 2, stride, store);
        } else {
            auto store = [t](const Floats& value, float* to) INLINED { put_of_tile(value, t, to); };
            transform_image(patch, x + block, v + t / 2 * transforms.channels + channel, stride, store);
        }
    };
    tiles.each<4>(plane, first, count, channels, begin, width, transform);
}

// Products of tiles and kernels at each position; output channels lie in pairs of blocks. A function by itself, like the
// next one: with constants in place of strides they are a tenth faster.
template <bool PAIRED>
void multiply_tiles(
    int64_t count, const Transforms& inputs, const float* v, const Transforms& kernels, const float* u,
    const Transforms& outputs, float* m) {
    int64_t in = inputs.channels, out = outputs.channels;
    for (int64_t position = 0; position < POSITIONS; ++position)
        for (int64_t channel = 0; channel < out; channel += PAIR)
            product<PAIRED>(
                count, channel + WIDTH < out, v + position * inputs.position_stride(), in, 1,
                u + position * kernels.position_stride() + channel * in, std::min(PAIR, out - channel), in, false,
                m + position * outputs.position_stride() + channel, out);
}

// Sums over tiles of the products of inputs and of gradients d, added to s if `add`.
template <bool PAIRED>
void sum_tiles(
    int64_t count, const Transforms& inputs, const float* v, const Transforms& outputs, const float* d, bool add,
    const Transforms& sums, float* s) {
    int64_t in = inputs.channels, out = outputs.channels;
    for (int64_t position = 0; position < POSITIONS; ++position)
        for (int64_t channel = 0; channel < out; channel += PAIR)
            product<PAIRED>(
                in, channel + WIDTH < out, v + position * inputs.position_stride(), 1, in,
                d + position * outputs.position_stride() + channel, out, count, add,
                s + position * sums.position_stride() + channel, out);
}

// y of the tiles `begin` to `end` from x (or dx from dy) and the kernels' transforms u, whose rows are input channels,
// or pairs of them; output channels lie in pairs of blocks.
template <Products HOW, typename From, typename To>
void convolve_tiles(
    const Dims& of_x, const Dims& of_y, int64_t begin, int64_t end, const From* x, const Transforms& kernels,
    const float* u, To* y, float* memory) {
    Tiles tiles(of_y);
    Plane from(of_x), to(of_y);
    int64_t in = kernels.rows, out = kernels.channels;
    Transforms inputs{TILES_AT_A_TIME, in}, outputs{TILES_AT_A_TIME, out};
    float *v = memory, *m = memory + inputs.floats();
    for (int64_t first = begin; first < end; first += TILES_AT_A_TIME) {
        int64_t count = std::min(TILES_AT_A_TIME, end - first);
        transform_tiles<HOW, Shared::channels>(tiles, from, first, count, x, of_x[1], 0, of_x[1], inputs, v);
        multiply_tiles<HOW == Products::bfloat16>(count, inputs, v, kernels, u, outputs, m);
        tiles.each<2>(
            to, first, count, out, 0, out,
            [&](const auto& patch, int64_t block, int64_t t, int64_t channel) INLINED {
                transform_back(m + t * out + channel, outputs.position_stride(), patch, y + block);
            });
    }
}

// y = x ⋆ w; or, `backward`, dx from dy: the same with input and output channels swapped and the kernels reversed.
template <Products HOW, typename From, typename To>
void convolve_images(
    const Problem& p, bool backward, const From* from, const float* weight, To* to, Scratch& scratch, int threads) {
    int64_t into = p.weight[1] * TAPS;  // floats between consecutive output channels of the weight
    int64_t in = p.weight[backward ? 0 : 1] / PLACED<HOW>, out = p.weight[backward ? 1 : 0];
    int64_t of_in = backward ? into : TAPS, of_out = backward ? TAPS : into;
    Transforms kernels{in, out};
    int64_t of_tiles = Transforms{TILES_AT_A_TIME, in}.floats() + Transforms{TILES_AT_A_TIME, out}.floats();
    float* u = scratch.floats(kernels.floats() + threads * of_tiles);
    int64_t stride = kernels.position_stride();
    auto transform = [&](int64_t block, int64_t k) {
        int64_t channel = block * WIDTH, pair = channel / PAIR * PAIR, width = std::min(PAIR, out - pair);
        const float* first = weight + channel * of_out + k * PLACED<HOW> * of_in;
        float* transformed = u + pair * in + k * width + channel - pair;
        if constexpr (HOW == Products::bfloat16) {
            float both[2][POSITIONS * WIDTH];
            auto keep = [](const Floats& value, float* to) INLINED { put(value, to); };
            transform_kernels(first, of_out, backward, both[0], WIDTH, keep);
            transform_kernels(first + of_in, of_out, backward, both[1], WIDTH, keep);
            for (int64_t at = 0; at < POSITIONS * WIDTH; at += WIDTH, transformed += stride)
                put_transform(pairs(get(both[0] + at), get(both[1] + at)), transformed);
        } else {
            auto store = [](const Floats& value, float* to) INLINED { put_transform(as_factor<HOW>(value), to); };
            transform_kernels(first, of_out, backward, transformed, stride, store);
        }
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
        convolve_tiles<HOW>(of_from, of_to, begin, end, from, kernels, u, to, u + kernels.floats() + part * of_tiles);
    });
}

// The weight's gradient for the `sums.rows` input channels from `begin` on, over all images; in bfloat16 of an even
// number of tiles.
template <Products HOW, typename OfX, typename OfY>
void gradient_of_channels(
    const Problem& p, const OfX* x, const OfY* dy, int64_t begin, const Transforms& sums, float* dweight,
    float* memory) {
    Tiles tiles(p.y);
    Plane of_x(p.x), of_y(p.y);
    int64_t all = p.x[1], in = sums.rows, out = sums.channels;
    constexpr int64_t AT_A_TIME = PLACED<HOW> * TILES_AT_A_TIME;
    Transforms inputs{TILES_AT_A_TIME, in}, outputs{TILES_AT_A_TIME, out};
    int64_t of_d = outputs.position_stride();
    float *v = memory, *d = v + inputs.floats(), *s = d + outputs.floats();
    for (int64_t first = 0; first < tiles.all; first += AT_A_TIME) {
        int64_t count = std::min(AT_A_TIME, tiles.all - first);
        transform_tiles<HOW, Shared::tiles>(tiles, of_x, first, count, x, all, begin, in, inputs, v);
        tiles.each<2>(
            of_y, first, count, out, 0, out,
            [&](const auto& patch, int64_t block, int64_t t, int64_t channel) INLINED {
                float* transform = d + t / PLACED<HOW> * out + channel;
                transform_gradient(patch, dy + block, transform, of_d, [t](const Floats& value, float* to) INLINED {
                    if constexpr (HOW == Products::bfloat16)
                        put_of_tile(value, t, to);
                    else
                        put(as_factor<HOW>(value), to);
                });
            });
        sum_tiles<HOW == Products::bfloat16>(count / PLACED<HOW>, inputs, v, outputs, d, first > 0, sums, s);
    }
    for (int64_t channel = 0; channel < out; channel += WIDTH)
        for (int64_t k = 0; k < in; ++k)
            transform_kernels_back(
                s + k * out + channel, sums.position_stride(), dweight + (channel * all + begin + k) * TAPS,
                all * TAPS);
}

template <Products HOW, typename OfX, typename OfY>
void weight_gradient(
    const Problem& p, const OfX* x, const OfY* dy, float* dweight, Scratch& scratch, int threads) {
    int64_t blocks = p.x[1] / WIDTH, out = p.y[1], most = (blocks + threads - 1) / threads * WIDTH;
    int64_t of_tiles = Transforms{TILES_AT_A_TIME, most}.floats() + Transforms{TILES_AT_A_TIME, out}.floats();
    int64_t each = of_tiles + Transforms{most, out}.floats();
    float* memory = scratch.floats(threads * each);
    thread_pool(threads)->parallel_for(threads, [&](int part, int of) {
        int64_t begin = blocks * part / of * WIDTH, end = blocks * (part + 1) / of * WIDTH;
        gradient_of_channels<HOW>(p, x, dy, begin, {end - begin, out}, dweight, memory + part * each);
    });
}
