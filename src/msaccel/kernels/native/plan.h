// A primitive with everything around it that depends on shapes alone.
#pragma once

#include "objects.h"

namespace msaccel {

// One tensor of an operator: which of the primitive's arguments it is, and how MindSpore has it: in float16 or float32,
// and plain or in blocks of 16 channels.
struct Operand {
    int arg;
    bool output;
    Dims dims;
    bool half;
    bool blocked = false;
};

// Runs a float32 primitive on MindSpore's tensors: those in float16 are converted, and those that oneDNN wants in another
// layout pass through a reorder. Safe to run on several threads at once.
class Plan {
  public:
    // Threads: what `team` to build for and to run on.
    Plan(Description description, std::vector<Operand> operands, int threads);

    // One pointer for each operand, in their order.
    void run(const std::vector<void*>& tensors) const;

  private:
    struct Placed {
        int arg;
        bool output;
        size_t count;               // elements
        Layout outer, inner;        // MindSpore's, and as the primitive wants it; null if that is the same
        Primitive reorder;          // between the two
        size_t reorder_scratch;     // its place in scratch_layouts_
        bool half;
        size_t whole_at, inner_at;  // places of the float32 copy and of the inner tensor in the scratch memory
    };

    Primitive primitive_;
    std::vector<Placed> placed_;
    std::vector<Layout> scratch_layouts_;  // of each reorder, then of the primitive; null where none is needed
    size_t scratch_at_ = 0, bytes_ = 0;
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
