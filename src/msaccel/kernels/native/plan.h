// A primitive with everything around it that depends on shapes alone.
#pragma once

#include "objects.h"

namespace msaccel {

// One tensor of an operator: which of the primitive's arguments it is, and how MindSpore lays it out.
struct Operand {
    int arg;
    bool output;
    Layout layout;
};

// Runs a primitive on plain tensors: operands that oneDNN wants otherwise pass through a reorder, which also converts
// between float16 outside and float32 inside. Safe to run on several threads at once.
class Plan {
  public:
    // Threads: what `team` to build for and to run on.
    Plan(Description description, std::vector<Operand> operands, int threads);

    // One pointer for each operand, in their order.
    void run(const std::vector<void*>& tensors) const;

  private:
    struct Placed {
        Operand operand;
        Layout inner;       // what the primitive reads or writes; null if it is the operand's own layout
        Primitive reorder;  // between the two
        size_t offset;      // of the inner tensor, in the scratch memory
    };

    Primitive primitive_;
    std::vector<Placed> placed_;
    std::vector<Layout> scratch_layouts_;  // of the primitive, then of each reorder; null where none is needed
    size_t scratch_offset_ = 0, bytes_ = 0;
    int threads_;
};

// Sets how many threads oneDNN plans for on this thread, and puts back what MindSpore had set.
class Concurrency {
  public:
    explicit Concurrency(int threads);
    ~Concurrency();
    Concurrency(const Concurrency&) = delete;
    Concurrency& operator=(const Concurrency&) = delete;

  private:
    int before_ = 0;
};

// Throws unless the oneDNN in this process is one that `onednn.h` describes.
void check_library();

}  // namespace msaccel
