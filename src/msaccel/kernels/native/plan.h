// A oneDNN primitive with its reorders and scratch memory: everything that depends on shapes alone.
#pragma once

#include "handles.h"

namespace msaccel {

// A tensor of an operator: its argument number in the primitive, and its type and layout in MindSpore: float16 or
// float32, plain or in blocks of 16 channels.
struct Operand {
    int arg;
    bool output;
    Dims dims;
    bool half;
    bool blocked = false;
};

// Runs a float32 primitive on MindSpore's tensors: converts those in float16, and reorders those for which oneDNN chose
// another layout. May run on several threads at once.
class Plan {
  public:
    // threads: the size of the `thread_pool` to build for and to run on.
    Plan(Description description, std::vector<Operand> operands, int threads);

    // tensors: the data of each operand, in the operands' order.
    void run(const std::vector<void*>& tensors) const;

  private:
    struct Placed {
        int arg;
        bool output;
        size_t count;               // elements
        Layout outer, inner;        // MindSpore's layout, and the primitive's; null if equal
        Primitive reorder;          // between the two layouts
        size_t reorder_scratch;     // its index in scratch_layouts_
        bool half;
        size_t whole_at, inner_at;  // offsets of the float32 copy and the inner tensor in the scratch memory
    };

    Primitive primitive_;
    std::vector<Placed> placed_;
    std::vector<Layout> scratch_layouts_;  // of each reorder, then of the primitive; null if it needs none
    size_t scratch_at_ = 0, bytes_ = 0;
    int threads_;
};

// Sets the number of threads that oneDNN plans for on this thread, and restores MindSpore's at the end of the scope.
class Concurrency {
  public:
    explicit Concurrency(int threads);
    ~Concurrency();
    Concurrency(const Concurrency&) = delete;
    Concurrency& operator=(const Concurrency&) = delete;

  private:
    int before_ = 0;
};

// Throws unless `onednn.h` describes the oneDNN in this process.
void check_library();

}  // namespace msaccel
