// On processors without float16 arithmetic oneDNN converts float16 element by element, which takes 20 times as long as
// the convolution itself. The loops here have no branches, so the compiler vectorises them. After F. Giesen,
// https://gist.github.com/rygorous/2156668 (public domain).
#include "half.h"

#include <algorithm>
#include <cstring>

#include "thread_pool.h"

namespace msaccel {
namespace {

constexpr uint32_t EXPONENT = 0x7c00u << 13;       // exponent bits of a float16, shifted to float32's position
constexpr uint32_t REBIAS = (127u - 15u) << 23;    // difference of the exponents' biases
constexpr uint32_t SMALLEST_NORMAL = 113u << 23;   // 2⁻¹⁴ as float32
constexpr uint32_t TOO_LARGE = (127u + 16u) << 23;  // 2¹⁶
constexpr uint32_t SHIFTER = 126u << 23;           // 0.5: adding it shifts a subnormal float16 to the lowest bits
constexpr size_t PER_PART = 1 << 16;

inline uint32_t bits(float value) {
    uint32_t same;
    std::memcpy(&same, &value, sizeof same);
    return same;
}

inline float value(uint32_t bits) {
    float same;
    std::memcpy(&same, &bits, sizeof same);
    return same;
}

inline uint32_t widened(uint16_t half) {
    uint32_t rest = (half & 0x7fffu) << 13;
    uint32_t exponent = rest & EXPONENT;
    uint32_t normal = rest + REBIAS + (exponent == EXPONENT ? REBIAS : 0);
    uint32_t subnormal = bits(value(rest + SMALLEST_NORMAL) - value(SMALLEST_NORMAL));
    return (exponent == 0 ? subnormal : normal) | (half & 0x8000u) << 16;
}

inline uint16_t narrowed(uint32_t whole) {
    uint32_t rest = whole & 0x7fffffffu;
    uint32_t special = rest > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t subnormal = bits(value(rest) + value(SHIFTER)) - SHIFTER;
    uint32_t normal = (rest - REBIAS + 0xfffu + (rest >> 13 & 1u)) >> 13;
    uint32_t half = rest >= TOO_LARGE ? special : rest < SMALLEST_NORMAL ? subnormal : normal;
    return static_cast<uint16_t>(half | (whole >> 16 & 0x8000u));
}

template <typename Range>
void in_parts(size_t count, int threads, const Range& range) {
    int parts = static_cast<int>(std::clamp<size_t>(count / PER_PART, 1, threads));
    thread_pool(threads)->parallel_for(
        parts, [&](int part, int of) { range(count * part / of, count * (part + 1) / of); });
}

// to[i] = convert(bits of from[i]); From and To are unsigned integers, or floats' bits.
template <typename To, typename From, typename Convert>
void convert_each(const void* from, void* to, size_t count, int threads, Convert convert) {
    in_parts(count, threads, [=](size_t begin, size_t end) {
        const From* read = static_cast<const From*>(from);
        To* written = static_cast<To*>(to);
        for (size_t i = begin; i < end; ++i) {
            From value;
            std::memcpy(&value, read + i, sizeof value);
            To converted = convert(value);
            std::memcpy(written + i, &converted, sizeof converted);
        }
    });
}

}  // namespace

void widen(Conversion conversion, const void* from, float* to, size_t count, int threads) {
    if (conversion == Conversion::float16)
        return convert_each<uint32_t, uint16_t>(from, to, count, threads, widened);
    if (conversion == Conversion::bfloat16)
        return convert_each<uint32_t, uint16_t>(
            from, to, count, threads, [](uint16_t half) { return static_cast<uint32_t>(half) << 16; });
    convert_each<uint32_t, uint32_t>(
        from, to, count, threads, [](uint32_t whole) { return static_cast<uint32_t>(to_bfloat16(whole)) << 16; });
}

void narrow(Conversion conversion, const float* from, void* to, size_t count, int threads) {
    if (conversion == Conversion::float16)
        return convert_each<uint16_t, uint32_t>(from, to, count, threads, narrowed);
    convert_each<uint16_t, uint32_t>(from, to, count, threads, to_bfloat16);
}

}  // namespace msaccel
