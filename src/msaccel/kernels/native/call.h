// The former name of args.h, for guard.cc alone.
#pragma once

#include "args.h"

namespace msaccel {

using Call = Args;

}  // namespace msaccel
