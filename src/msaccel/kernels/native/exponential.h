// The exponential function of a vector. Included once per target inside its namespace, so without an include guard.

// eˣ within 2 units in the last place: x = n·log 2 + r with |r| ≤ log 2 / 2, and a polynomial in r, which is that of
// Cephes' expf (S. Moshier). Below −87 the result is 0, above 88 infinite; NaN stays NaN.
INLINE Floats exponential(const Floats& x) {
    const float rounds = 12582912;  // 1.5 · 2²³: adding it rounds to an integer, which is then in the lowest bits
    Floats shifted = x * 1.44269504f + rounds, n = shifted - rounds;
    Floats r = x - n * 0.693359375f - n * -2.12194440e-4f;
    Floats p = Floats{} + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1;
    Floats y = (Floats)((Whole)p + ((Whole)shifted << 23));
    y = x < -87 ? Floats{} : y;
    return x > 88 ? Floats{} + std::numeric_limits<float>::infinity() : y;
}
