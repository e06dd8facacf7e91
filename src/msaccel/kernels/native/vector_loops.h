// Loading, storing and shuffling vectors. Included once per target inside its namespace, so without an include guard.

INLINE void load(const float* from, int64_t count, float otherwise, Vector& to) {
    if (count == LANES) {
        to = *reinterpret_cast<const Vector*>(from);
    } else {
        for (int lane = 0; lane < LANES; ++lane) to[lane] = lane < count ? from[lane] : otherwise;
    }
}

INLINE void store(const Vector& from, int64_t count, float* to) {
    if (count == LANES) {
        *reinterpret_cast<Vector*>(to) = from;
    } else {
        for (int lane = 0; lane < count; ++lane) to[lane] = from[lane];
    }
}

// Calls body(i, count of elements from i on) over `begin` to `end`, LANES elements at a time; the last may be fewer.
template <typename Body>
INLINE void each_vector(int64_t begin, int64_t end, Body body) {
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES) body(i, int64_t{LANES});
    if (i < end) body(i, end - i);
}

// Small integers held as floats, from and to bytes.
INLINE void load_bytes(const uint8_t* from, int64_t count, Vector& to) {
    if (count == LANES) {
        to = __builtin_convertvector(*reinterpret_cast<const Bytes*>(from), Vector);
    } else {
        for (int lane = 0; lane < LANES; ++lane) to[lane] = lane < count ? from[lane] : 0;
    }
}

INLINE void store_bytes(const Vector& from, int64_t count, uint8_t* to) {
    if (count == LANES) {
        *reinterpret_cast<Bytes*>(to) = __builtin_convertvector(__builtin_convertvector(from, Integers), Bytes);
    } else {
        for (int lane = 0; lane < count; ++lane) to[lane] = static_cast<uint8_t>(static_cast<int>(from[lane]));
    }
}

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Integers{__VA_ARGS__})
#endif

// Splits the concatenation of a and b into elements of even and of odd index; and back.
INLINE void deinterleave(const Vector& a, const Vector& b, Vector& even, Vector& odd) {
    even = SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    odd = SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

INLINE void interleave(const Vector& even, const Vector& odd, Vector& a, Vector& b) {
    a = SHUFFLE(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    b = SHUFFLE(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#undef SHUFFLE
