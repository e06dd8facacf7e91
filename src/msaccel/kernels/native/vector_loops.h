// Loading, storing and shuffling vectors. Included once per target inside its namespace, so without an include guard.

// GCC compares and shuffles vectors that are wider than the processor's one element at a time, and keeps arrays of them
// in memory. So loops that do any of this use these, of the processor's WIDTH (dispatch.h). A loop with sums must still
// have LANES of them, as `Sum` does, since its results would differ with WIDTH otherwise.
typedef float Floats __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t Whole __attribute__((vector_size(4 * WIDTH)));
typedef uint8_t Small __attribute__((vector_size(WIDTH), aligned(1), may_alias));

// Partial vectors, of count < LANES elements: `load_first` fills the other lanes with `otherwise`, `keep_first` zeroes
// them, `store_first` leaves the memory behind the elements alone. (The sanitizer of addresses does not see masks.)
#if WIDTH == 16 && !defined(__SANITIZE_ADDRESS__)
INLINE __mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
INLINE void load_first(const float* from, int64_t count, float otherwise, Vector& to) {
    to = (Vector)_mm512_mask_loadu_ps(_mm512_set1_ps(otherwise), first_lanes(count), from);
}
INLINE void keep_first(int64_t count, Vector& value) {
    value = (Vector)_mm512_maskz_mov_ps(first_lanes(count), (__m512)value);
}
INLINE void store_first(const Vector& from, int64_t count, float* to) {
    _mm512_mask_storeu_ps(to, first_lanes(count), (__m512)from);
}
#elif WIDTH == 8 && !defined(__SANITIZE_ADDRESS__)
INLINE __m256i first_lanes(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE void load_first(const float* from, int64_t count, float otherwise, Vector& to) {
    Floats* parts = reinterpret_cast<Floats*>(&to);
    for (int part = 0; part < 2; ++part) {
        __m256i in = first_lanes(count - 8 * part);
        __m256 read = _mm256_maskload_ps(from + 8 * part, in);
        parts[part] = (Floats)_mm256_blendv_ps(_mm256_set1_ps(otherwise), read, (__m256)in);
    }
}
INLINE void keep_first(int64_t count, Vector& value) {
    Floats* parts = reinterpret_cast<Floats*>(&value);
    for (int part = 0; part < 2; ++part)
        parts[part] = (Floats)_mm256_and_ps((__m256)parts[part], (__m256)first_lanes(count - 8 * part));
}
INLINE void store_first(const Vector& from, int64_t count, float* to) {
    const Floats* parts = reinterpret_cast<const Floats*>(&from);
    for (int part = 0; part < 2; ++part)
        _mm256_maskstore_ps(to + 8 * part, first_lanes(count - 8 * part), (__m256)parts[part]);
}
#else
INLINE void load_first(const float* from, int64_t count, float otherwise, Vector& to) {
    for (int lane = 0; lane < LANES; ++lane) to[lane] = lane < count ? from[lane] : otherwise;
}
INLINE void keep_first(int64_t count, Vector& value) {
    for (int lane = static_cast<int>(count); lane < LANES; ++lane) value[lane] = 0;
}
INLINE void store_first(const Vector& from, int64_t count, float* to) {
    for (int lane = 0; lane < count; ++lane) to[lane] = from[lane];
}
#endif

INLINE void load(const float* from, int64_t count, float otherwise, Vector& to) {
    if (count == LANES)
        to = *reinterpret_cast<const Vector*>(from);
    else
        load_first(from, count, otherwise, to);
}

INLINE void store(const Vector& from, int64_t count, float* to) {
    if (count == LANES)
        *reinterpret_cast<Vector*>(to) = from;
    else
        store_first(from, count, to);
}

INLINE void load(const Bfloat16* from, int64_t count, float otherwise, Vector& to) {
    Halves halves = {};
    if (count == LANES)
        halves = *reinterpret_cast<const Halves*>(from);
    else
        std::memcpy(&halves, from, count * sizeof(Bfloat16));
    to = (Vector)(__builtin_convertvector(halves, Bits) << 16);
    for (int lane = static_cast<int>(count); lane < LANES; ++lane) to[lane] = otherwise;
}

// Rounds to nearest, ties to even; NaN stays NaN.
INLINE void store(const Vector& from, int64_t count, Bfloat16* to) {
    Bits bits = (Bits)from;
    Bits rounded = bits + 0x7fff + (bits >> 16 & 1);
    Bits nan = (Bits)((bits & 0x7fffffff) > 0x7f800000);
    Halves halves = __builtin_convertvector(((nan & (bits | 0x400000)) | (~nan & rounded)) >> 16, Halves);
    if (count == LANES)
        *reinterpret_cast<Halves*>(to) = halves;
    else
        std::memcpy(to, &halves, count * sizeof(Bfloat16));
}

// Calls body(i, count of elements from i on) over `begin` to `end`, LANES elements at a time; the last may be fewer.
template <typename Body>
INLINE void each_vector(int64_t begin, int64_t end, Body body) {
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES) body(i, int64_t{LANES});
    if (i < end) body(i, end - i);
}

// A sum of vectors. GCC keeps a Vector that is wider than the processor's in memory between the iterations of a loop,
// where each addition waits for the one before it to be written.
struct Sum {
    Floats parts[LANES / WIDTH] = {};

    INLINE void operator+=(const Vector& value) {
        const Floats* values = reinterpret_cast<const Floats*>(&value);
        for (int part = 0; part < LANES / WIDTH; ++part) parts[part] += values[part];
    }
    INLINE float operator[](int lane) const { return parts[lane / WIDTH][lane % WIDTH]; }
};

// The sum of value(i, n) over `count` elements, where that is a vector for n elements from i on, with zeros in the other
// lanes: in float32 over LONGEST elements, then in float64.
template <typename Value>
INLINE double sum_over(int64_t count, Value value) {
    double sum = 0;
    for (int64_t begin = 0; begin < count; begin += LONGEST) {
        Sum total;
        each_vector(begin, std::min(begin + LONGEST, count), [&](int64_t i, int64_t n) INLINED {
            total += value(i, n);
        });
        for (int lane = 0; lane < LANES; ++lane) sum += total[lane];
    }
    return sum;
}

// Σ value(i)²: LANES sums in float32 over LONGEST elements at most, added in float64
template <typename Value>
INLINE double squares_over(int64_t count, Value value) {
    double total = 0;
    for (int64_t begin = 0; begin < count; begin += LONGEST) {
        int64_t end = std::min(begin + LONGEST, count), i = begin;
        float lanes[LANES] = {};
        for (; i + LANES <= end; i += LANES)
            for (int lane = 0; lane < LANES; ++lane) lanes[lane] += value(i + lane) * value(i + lane);
        for (int lane = 0; i < end; ++i, ++lane) lanes[lane] += value(i) * value(i);
        for (float lane : lanes) total += lane;
    }
    return total;
}

INLINE void load_floats(const float* from, int64_t count, Floats& to) {
    if (count >= WIDTH) {
        to = *reinterpret_cast<const Floats*>(from);
    } else {
        for (int lane = 0; lane < WIDTH; ++lane) to[lane] = lane < count ? from[lane] : 0;
    }
}

INLINE void store_floats(const Floats& from, int64_t count, float* to) {
    if (count >= WIDTH) {
        *reinterpret_cast<Floats*>(to) = from;
    } else {
        for (int lane = 0; lane < count; ++lane) to[lane] = from[lane];
    }
}

// Sets a value to 0 where its sign is not positive; a sign of NaN keeps it.
INLINE void keep_positive(const Vector& sign, Vector& value) {
    const Floats* signs = reinterpret_cast<const Floats*>(&sign);
    Floats* values = reinterpret_cast<Floats*>(&value);
    for (int part = 0; part < LANES / WIDTH; ++part) values[part] = signs[part] <= 0 ? Floats{} : values[part];
}

// Small integers held as floats, from and to bytes.
INLINE void load_bytes(const uint8_t* from, int64_t count, Floats& to) {
    if (count >= WIDTH) {
        to = __builtin_convertvector(*reinterpret_cast<const Small*>(from), Floats);
    } else {
        for (int lane = 0; lane < WIDTH; ++lane) to[lane] = lane < count ? from[lane] : 0;
    }
}

INLINE void store_bytes(const Floats& from, int64_t count, uint8_t* to) {
    if (count >= WIDTH) {
        *reinterpret_cast<Small*>(to) = __builtin_convertvector(__builtin_convertvector(from, Whole), Small);
    } else {
        for (int lane = 0; lane < count; ++lane) to[lane] = static_cast<uint8_t>(static_cast<int>(from[lane]));
    }
}

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define SHUFFLE_FLOATS SHUFFLE
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Integers{__VA_ARGS__})
#define SHUFFLE_FLOATS(a, b, ...) __builtin_shuffle(a, b, Whole{__VA_ARGS__})
#endif
#define EVEN_OF_16 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD_OF_16 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#if WIDTH == 16
#define EVEN EVEN_OF_16
#define ODD ODD_OF_16
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif WIDTH == 8
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#endif

// Splits the concatenation of a and b into elements of even and of odd index; and back.
INLINE void deinterleave(const Vector& a, const Vector& b, Vector& even, Vector& odd) {
    even = SHUFFLE(a, b, EVEN_OF_16);
    odd = SHUFFLE(a, b, ODD_OF_16);
}

INLINE void deinterleave_floats(const Floats& a, const Floats& b, Floats& even, Floats& odd) {
    even = SHUFFLE_FLOATS(a, b, EVEN);
    odd = SHUFFLE_FLOATS(a, b, ODD);
}

INLINE void interleave_floats(const Floats& even, const Floats& odd, Floats& a, Floats& b) {
    a = SHUFFLE_FLOATS(even, odd, LOW);
    b = SHUFFLE_FLOATS(even, odd, HIGH);
}
#undef SHUFFLE
#undef SHUFFLE_FLOATS
#undef EVEN_OF_16
#undef ODD_OF_16
#undef EVEN
#undef ODD
#undef LOW
#undef HIGH
