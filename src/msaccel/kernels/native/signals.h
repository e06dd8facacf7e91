// The order of what is reported of an update: the fields of `Outcome` in `kernels/finite_check.py`. A test compares both.
#pragma once

namespace msaccel {

enum Signal { NORM, NORM_MAX, APPLIED, CLIPPED, LOSS_SCALE, CONSECUTIVE_SKIPS, SIGNALS };  // the last one counts them

}  // namespace msaccel
