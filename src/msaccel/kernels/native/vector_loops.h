// What loops over vectors need; included inside a namespace for each target, so without a guard.

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

// body(i, count of numbers from i on) for all of `begin` to `end`; all but the last are of LANES numbers.
template <typename Body>
INLINE void each_vector(int64_t begin, int64_t end, Body body) {
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES) body(i, int64_t{LANES});
    if (i < end) body(i, end - i);
}
