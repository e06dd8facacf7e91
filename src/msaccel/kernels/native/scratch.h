// Scratch memory of an operator.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "handles.h"

namespace msaccel {

constexpr size_t ALIGNMENT = 64;

inline size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

// A buffer that grows and is reused; its contents are undefined at the start of each use.
class Scratch {
  public:
    char* at_least(size_t wanted) {
        if (wanted > bytes_) {
            memory_.reset();
            bytes_ = 0;
            memory_.reset(static_cast<char*>(std::aligned_alloc(ALIGNMENT, aligned(wanted))));
            if (!memory_) throw Error("no memory for " + std::to_string(wanted) + " bytes beside an operator");
            bytes_ = aligned(wanted);
        }
        return memory_.get();
    }

    float* floats(int64_t count) { return reinterpret_cast<float*>(at_least(count * sizeof(float))); }

  private:
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    std::unique_ptr<char, Free> memory_;
    size_t bytes_ = 0;
};

}  // namespace msaccel
