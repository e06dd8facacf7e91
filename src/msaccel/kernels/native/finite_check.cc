// The finite check and what follows from it for its state, in one operator; `finite_check.py` says what it is for.
#include <algorithm>
#include <cmath>

#include "args.h"
#include "signals.h"

using namespace msaccel;

namespace {

constexpr float LARGEST_SCALE = 18446744073709551616.0f;  // 2⁶⁴: beyond it the loss itself would leave float32

}  // namespace

// norms, share of the gradients clipped, (limit, growth interval or 0 for a scale that stays) int32, scale, bound,
// consecutive skips, good updates (int32) → applied (1), signals
OPERATOR(finite_check) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the finite check", 9, 9);
    for (int one : {1, 3, 4, 5, 7})
        if (args.elements(one) != 1) throw Error("the finite check's state is of single numbers");
    if (args.elements(8) != SIGNALS || std::strcmp(types[6], "int32"))
        throw Error("the finite check has six signals and counts in int32");
    const int32_t *settings = args.numbers(2, 2), interval = settings[1];
    double sum = 0;
    float largest = 0;
    int64_t parts = args.elements(0);
    for (const float* norm = args.floats(0); norm < args.floats(0) + parts; ++norm) {
        sum += *norm;
        if (*norm > largest || std::isnan(*norm)) largest = *norm;
    }
    float norm = static_cast<float>(sum / static_cast<double>(parts)), limit = static_cast<float>(settings[0]);
    float &scale = *args.floats(3), &bound = *args.floats(4), &skips = *args.floats(5);
    int32_t& good_updates = *static_cast<int32_t*>(data[6]);
    float before = scale;
    bool finite = norm < bound;
    if (finite) {
        skips = 0;
        if (interval > 0 && ++good_updates == interval) {
            scale = std::min(2 * scale, LARGEST_SCALE);
            good_updates = 0;
        }
    } else if (skips != limit) {  // at the limit all rests: the loop reads there what ended the job
        skips += 1;
        if (skips == limit) bound = 0;
        if (interval > 0) scale = std::max(scale / 2, 1.0f);
        good_updates = 0;
    }
    float clipped = finite ? *args.floats(1) : 0;
    *args.floats(7) = finite;
    float* signals = args.floats(8);
    signals[NORM] = norm;
    signals[NORM_MAX] = largest;
    signals[APPLIED] = finite;
    signals[CLIPPED] = clipped;
    signals[LOSS_SCALE] = before;
    signals[CONSECUTIVE_SKIPS] = skips;
    return 0;
}
