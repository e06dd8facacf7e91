// Owning handles of oneDNN's objects, and its status codes as exceptions.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "onednn.h"

namespace msaccel {

using Dims = std::vector<int64_t>;

// Of a tensor's elements.
enum class Type { float32, float16, bfloat16 };

// In bytes.
inline int64_t size_of(Type type) { return type == Type::float32 ? 4 : 2; }

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void check(dnnl_status_t status, const std::string& what) {
    if (status == dnnl_success) return;
    const char* reason = status == dnnl_out_of_memory        ? "out of memory"
                         : status == dnnl_invalid_arguments ? "invalid arguments"
                         : status == dnnl_unimplemented     ? "not implemented"
                                                            : "failed";
    throw Error("oneDNN: " + what + ": " + reason + " (status " + std::to_string(status) + ")");
}

template <auto destroy>
struct Destroy {
    template <typename T>
    void operator()(T* object) const {
        destroy(object);
    }
};

template <typename T, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Destroy<destroy>>;

using Memory = Owned<dnnl_memory_t, dnnl_memory_destroy>;
using Layout = Owned<dnnl_memory_desc_t, dnnl_memory_desc_destroy>;
using Primitive = Owned<dnnl_primitive_t, dnnl_primitive_destroy>;
using Description = Owned<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Attributes = Owned<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using Stream = Owned<dnnl_stream_t, dnnl_stream_destroy>;

dnnl_engine_t engine();

// Elements at these distances; type: dnnl_f32 or dnnl_bf16, here and below.
Layout strided(const Dims& dims, int type, const dnnl_dims_t strides);

// The dense row-major layout of MindSpore's tensors.
// gap: elements between two rows, which are all dimensions but the first.
Layout plain(const Dims& dims, int type, int64_t gap = 0);

// The same with the last two dimensions exchanged in memory.
Layout transposed(const Dims& dims, int type);

// How images (n, c, h, w) lie in memory.
enum class Order {
    channels_first,  // (n, c, h, w)
    blocks,          // (n, c / block, h, w, block), of `block()` channels
    channels_last,   // (n, h, w, c)
};

Layout images(const Dims& dims, int type, Order order);

// A layout that oneDNN chooses.
Layout any(const Dims& dims, int type);

// Attributes for scratch memory that the caller provides. oneDNN's own belongs to one thread, but MindSpore runs an
// operator on varying threads.
Attributes attributes();

}  // namespace msaccel
