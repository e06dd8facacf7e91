// Winograd's F(2 × 2, 3 × 3) on vectors of WIDTH channels, a block's. With d a 4 × 4 patch of the image, g a kernel and
// M the products of their transforms, summed over channels,
//
//     y = Aᵀ M A,  M = (G g Gᵀ) ⊙ (Bᵀ d B),  and backward  dg = Gᵀ (Σ (A dy Aᵀ) ⊙ (Bᵀ d B)) G
//
// A transform has 4 × 4 positions, and a matrix of transforms is [position][tile][channel]. In bfloat16 (Products) the
// transforms are rounded, and a float's place in a matrix holds two of them, which the processor multiplies and adds at
// once; emulated, they are rounded to floats.

#include "vector_loops.h"

constexpr int POSITIONS = 16, TAPS = 9;

INLINE Floats get(const float* from) { return *reinterpret_cast<const Floats*>(from); }
INLINE void put(const Floats& value, float* to) { *reinterpret_cast<Floats*>(to) = value; }

typedef uint32_t Raw __attribute__((vector_size(4 * WIDTH)));

// To the nearest number of bfloat16, ties to even.
INLINE Floats rounded(const Floats& value) {
    Raw bits = (Raw)value;
    Raw nearest = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    return value == value ? (Floats)nearest : value;
}

#if WIDTH == 16

typedef __mmask16 Mask;
INLINE Mask mask(bool in) { return in ? 0xffff : 0; }
INLINE Floats get_if(Mask in, const float* from) { return (Floats)_mm512_maskz_loadu_ps(in, from); }
INLINE void put_if(Mask in, const Floats& value, float* to) { _mm512_mask_storeu_ps(to, in, (__m512)value); }
// Past the caches: the transforms of all kernels are larger, and each kernel's go to 16 positions.
INLINE void put_transform(const Floats& value, float* to) { _mm512_stream_ps(to, (__m512)value); }
INLINE Floats broadcast(float value) { return (Floats)_mm512_set1_ps(value); }
INLINE Floats multiply_add(const Floats& a, const Floats& b, const Floats& sum) {
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
}
INLINE __m512i multiples(int64_t step) {
    Whole lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return (__m512i)(lanes * static_cast<int32_t>(step));
}
INLINE Floats gather(const float* from, int64_t step) {
    return (Floats)_mm512_i32gather_ps(multiples(step), from, sizeof(float));
}
INLINE void scatter(const Floats& value, float* to, int64_t step) {
    _mm512_i32scatter_ps(to, multiples(step), (__m512)value, sizeof(float));
}
constexpr int MOST_ROWS = 14;  // of a product: 28 sums, two vectors of b and one of a are 31 of the 32 registers

#else

typedef bool Mask;
INLINE Mask mask(bool in) { return in; }
INLINE Floats get_if(Mask in, const float* from) { return in ? get(from) : Floats{}; }
INLINE void put_if(Mask in, const Floats& value, float* to) {
    if (in) put(value, to);
}
INLINE void put_transform(const Floats& value, float* to) { put(value, to); }  // half a line, so through the caches
INLINE Floats broadcast(float value) { return (Floats)_mm256_set1_ps(value); }
INLINE Floats multiply_add(const Floats& a, const Floats& b, const Floats& sum) {
    return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
}
INLINE Floats gather(const float* from, int64_t step) {
    Floats value;
    for (int lane = 0; lane < WIDTH; ++lane) value[lane] = from[lane * step];
    return value;
}
INLINE void scatter(const Floats& value, float* to, int64_t step) {
    for (int lane = 0; lane < WIDTH; ++lane) to[lane * step] = value[lane];
}
constexpr int MOST_ROWS = 6;  // of a product: 12 sums, two vectors of b and one of a are 15 of the 16 registers

#endif

#ifdef PAIRS

INLINE __m256i halves(const Floats& value) { return (__m256i)_mm512_cvtneps_pbh((__m512)value); }
INLINE __m512i widened(__m256i halves) { return _mm512_cvtepu16_epi32(halves); }
INLINE Floats get_if(Mask in, const Bfloat16* from) {
    return (Floats)_mm512_slli_epi32(widened(_mm256_maskz_loadu_epi16(in, from)), 16);
}
INLINE void put_if(Mask in, const Floats& value, Bfloat16* to) { _mm256_mask_storeu_epi16(to, in, halves(value)); }
INLINE void put_halves(const Floats& value, float* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves(value));
}
INLINE Floats pairs(const Floats& first, const Floats& second) {
    return (Floats)_mm512_or_si512(widened(halves(first)), _mm512_slli_epi32(widened(halves(second)), 16));
}
INLINE Floats multiply_add_pairs(const Floats& a, const Floats& b, const Floats& sum) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}

#else  // declared for templates that are not used here

void put_halves(const Floats& value, float* to);
Floats pairs(const Floats& first, const Floats& second);
Floats multiply_add_pairs(const Floats& a, const Floats& b, const Floats& sum);

#endif

// Transforms in a float's place.
template <Products HOW>
constexpr int64_t PLACED = HOW == Products::bfloat16 ? 2 : 1;

template <Products HOW>
INLINE Floats as_factor(const Floats& value) {
    return HOW == Products::emulated ? rounded(value) : value;
}

// The patch of a tile, at offset `at` of each block of channels; pixels outside of the image are masked.
template <int SIDE>
struct Patch {
    int64_t at, row;
    Mask inside[SIDE][SIDE];

    Patch(int64_t top, int64_t left, int64_t height, int64_t width)
        : at((top * width + left) * WIDTH), row(width * WIDTH) {
        for (int i = 0; i < SIDE; ++i)
            for (int j = 0; j < SIDE; ++j) {
                bool in = top + i >= 0 && top + i < height && left + j >= 0 && left + j < width;
                inside[i][j] = mask(in);
            }
    }

    template <typename Pixel>
    INLINE Floats load(const Pixel* block, int i, int j) const {
        return get_if(inside[i][j], block + at + i * row + j * WIDTH);
    }

    template <typename Pixel>
    INLINE void store(const Floats& value, Pixel* block, int i, int j) const {
        put_if(inside[i][j], value, block + at + i * row + j * WIDTH);
    }
};

// Transforms are stored by put(value, to), positions `stride` floats apart.

// Bᵀ d B
template <typename Pixel, typename Put>
INLINE void transform_image(const Patch<4>& patch, const Pixel* block, float* to, int64_t stride, Put put) {
    Floats rows[4][4];
    for (int j = 0; j < 4; ++j) {
        Floats d[4];
        for (int i = 0; i < 4; ++i) d[i] = patch.load(block, i, j);
        rows[0][j] = d[0] - d[2];
        rows[1][j] = d[1] + d[2];
        rows[2][j] = d[2] - d[1];
        rows[3][j] = d[1] - d[3];
    }
    for (int i = 0; i < 4; ++i, to += 4 * stride) {
        put(rows[i][0] - rows[i][2], to);
        put(rows[i][1] + rows[i][2], to + stride);
        put(rows[i][2] - rows[i][1], to + 2 * stride);
        put(rows[i][1] - rows[i][3], to + 3 * stride);
    }
}

// A dy Aᵀ
template <typename Pixel, typename Put>
INLINE void transform_gradient(const Patch<2>& patch, const Pixel* block, float* to, int64_t stride, Put put) {
    Floats rows[4][2];
    for (int j = 0; j < 2; ++j) {
        Floats first = patch.load(block, 0, j), second = patch.load(block, 1, j);
        rows[0][j] = first;
        rows[1][j] = first + second;
        rows[2][j] = first - second;
        rows[3][j] = -second;
    }
    for (int i = 0; i < 4; ++i, to += 4 * stride) {
        put(rows[i][0], to);
        put(rows[i][0] + rows[i][1], to + stride);
        put(rows[i][0] - rows[i][1], to + 2 * stride);
        put(-rows[i][1], to + 3 * stride);
    }
}

// Aᵀ M A
template <typename Pixel>
INLINE void transform_back(const float* from, int64_t stride, const Patch<2>& patch, Pixel* block) {
    Floats rows[2][4];
    for (int j = 0; j < 4; ++j, from += stride) {
        Floats second = get(from + 4 * stride), third = get(from + 8 * stride);
        rows[0][j] = get(from) + second + third;
        rows[1][j] = second - third - get(from + 12 * stride);
    }
    for (int i = 0; i < 2; ++i) {
        patch.store(rows[i][0] + rows[i][1] + rows[i][2], block, i, 0);
        patch.store(rows[i][1] - rows[i][2] - rows[i][3], block, i, 1);
    }
}

// G g Gᵀ of the kernels whose first taps are `step` floats apart; `turned` reads the taps in reverse.
template <typename Put>
INLINE void transform_kernels(
    const float* kernels, int64_t step, bool turned, float* to, int64_t stride, Put put) {
    Floats rows[4][3];
    for (int j = 0; j < 3; ++j) {
        Floats g[3];
        for (int i = 0; i < 3; ++i) {
            int tap = 3 * i + j;
            g[i] = gather(kernels + (turned ? TAPS - 1 - tap : tap), step);
        }
        Floats ends = 0.5f * (g[0] + g[2]), middle = 0.5f * g[1];
        rows[0][j] = g[0];
        rows[1][j] = ends + middle;
        rows[2][j] = ends - middle;
        rows[3][j] = g[2];
    }
    for (int i = 0; i < 4; ++i, to += 4 * stride) {
        Floats ends = 0.5f * (rows[i][0] + rows[i][2]), middle = 0.5f * rows[i][1];
        put(rows[i][0], to);
        put(ends + middle, to + stride);
        put(ends - middle, to + 2 * stride);
        put(rows[i][2], to + 3 * stride);
    }
}

// Gᵀ P G, to kernels whose first taps are `step` floats apart
INLINE void transform_kernels_back(const float* from, int64_t stride, float* kernels, int64_t step) {
    Floats rows[3][4];
    for (int j = 0; j < 4; ++j, from += stride) {
        Floats second = get(from + 4 * stride), third = get(from + 8 * stride);
        Floats sum = 0.5f * (second + third);
        rows[0][j] = get(from) + sum;
        rows[1][j] = 0.5f * (second - third);
        rows[2][j] = sum + get(from + 12 * stride);
    }
    for (int i = 0; i < 3; ++i) {
        Floats sum = 0.5f * (rows[i][1] + rows[i][2]);
        Floats taps[3] = {rows[i][0] + sum, 0.5f * (rows[i][1] - rows[i][2]), sum + rows[i][3]};
        for (int j = 0; j < 3; ++j) scatter(taps[j], kernels + 3 * i + j, step);
    }
}
