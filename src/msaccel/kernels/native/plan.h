// A oneDNN primitive with its reorders and scratch memory: everything that depends on shapes alone.
#pragma once

#include "half.h"
#include "handles.h"

namespace msaccel {

// How an operator multiplies. Sums are in float32 whatever this is.
enum class Products {
    float32 = 0,   // in float32; tensors may be in float16
    bfloat16 = 1,  // of numbers rounded to bfloat16, by the processor's instructions for that; tensors may be in it
    emulated = 2,  // the same in float32, for processors without these instructions
};

// From a setting of an operator; throws if there is no such one.
Products products(int32_t setting);

// A tensor of an operator: its argument number in the primitive, and its layout in MindSpore, which is in float32 if it
// is converted.
struct Operand {
    int arg;
    bool output;
    Dims dims;
    Layout outer;
    Conversion conversion;
    bool in_one_set = false;  // whether its rows fall into one set of the cache, if they are dense
};

// What multiplying in some way means for the types of tensors.
struct Multiplication {
    Products products;

    // oneDNN's type of factors.
    int factor() const { return products == Products::bfloat16 ? dnnl_bf16 : dnnl_f32; }
    // oneDNN's type of a tensor behind its conversion.
    int tensor(Type type) const { return type == Type::bfloat16 ? factor() : dnnl_f32; }
    // Of a tensor that is a factor, or is not: a bias or a result.
    Conversion conversion(Type type, bool is_factor) const;
};

// Runs a primitive on MindSpore's tensors: converts them, and reorders those for which oneDNN chose another type or
// layout. May run on several threads at once.
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
        Conversion conversion;
        size_t whole_at, inner_at;  // offsets of the copy in `outer` and the inner tensor in the scratch memory
        int64_t rows;               // that lie apart in `outer`; 0 if it is dense
    };

    Primitive primitive_;
    std::vector<Placed> placed_;
    std::vector<Layout> scratch_layouts_;  // of each reorder, then of the primitive; null if it needs none
    size_t scratch_at_ = 0, bytes_ = 0;
    int threads_;
};

// Copies a tensor from one layout and type into another. Operands: from, to.
std::shared_ptr<const Plan> make_copy(const Dims& dims, Layout from, Layout to, int threads);

// Whether oneDNN multiplies in bfloat16 by AMX, tile by tile. Tests set it, to have the code for AMX run elsewhere.
bool& multiplies_tiles();

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
