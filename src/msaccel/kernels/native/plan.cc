#include "plan.h"

#include <algorithm>
#include <mutex>

#include "half.h"
#include "scratch.h"
#include "thread_pool.h"
#include "vector.h"

namespace msaccel {
namespace {

constexpr int64_t LINE = 16;  // floats of a line of the cache

// Scratch memory and streams for one running operator.
struct Workspace {
    Scratch memory;
    std::vector<Stream> streams;

    dnnl_stream_t stream(int threads) {
        if (streams.size() <= static_cast<size_t>(threads)) streams.resize(threads + 1);
        if (!streams[threads]) {
            dnnl_stream_t made = nullptr;
            check(dnnl_threadpool_interop_stream_create(&made, engine(), thread_pool(threads)), "stream");
            streams[threads].reset(made);
        }
        return streams[threads].get();
    }
};

// Workspaces that are not in use; as many are created as operators ever run at the same time.
struct Workspaces {
    std::mutex mutex;
    std::vector<std::unique_ptr<Workspace>> free;
};

Workspaces& workspaces() {
    static Workspaces* all = new Workspaces;
    return *all;
}

// A workspace for the duration of a scope.
class WorkspaceLease {
  public:
    WorkspaceLease() {
        std::lock_guard<std::mutex> lock(workspaces().mutex);
        if (workspaces().free.empty()) {
            workspace_ = std::make_unique<Workspace>();
        } else {
            workspace_ = std::move(workspaces().free.back());
            workspaces().free.pop_back();
        }
    }
    ~WorkspaceLease() {
        std::lock_guard<std::mutex> lock(workspaces().mutex);
        workspaces().free.push_back(std::move(workspace_));
    }
    WorkspaceLease(const WorkspaceLease&) = delete;
    WorkspaceLease& operator=(const WorkspaceLease&) = delete;
    Workspace* operator->() const { return workspace_.get(); }

  private:
    std::unique_ptr<Workspace> workspace_;
};

Layout copy(const_dnnl_memory_desc_t layout) {
    dnnl_memory_desc_t made = nullptr;
    check(dnnl_memory_desc_clone(&made, layout), "layout");
    return Layout(made);
}

Memory memory(const Layout& layout, void* data) {
    dnnl_memory_t made = nullptr;
    check(dnnl_memory_create(&made, layout.get(), engine(), data), "memory");
    return Memory(made);
}

Primitive primitive(const Description& description) {
    dnnl_primitive_t made = nullptr;
    check(dnnl_primitive_create(&made, description.get()), "primitive");
    return Primitive(made);
}

Description reorder(const Layout& from, const Layout& to) {
    dnnl_primitive_desc_t made = nullptr;
    check(
        dnnl_reorder_primitive_desc_create(
            &made, from.get(), engine(), to.get(), engine(), attributes().get()),
        "reorder");
    return Description(made);
}

}  // namespace

void check_library() {
    const dnnl_version_t* version = dnnl_version();
    if (version->major != 3 || version->cpu_runtime != DNNL_RUNTIME_THREADPOOL)
        throw Error(
            "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + " with runtime " +
            std::to_string(version->cpu_runtime) + " was found, not 3.x with a thread pool");
}

dnnl_engine_t engine() {
    static const dnnl_engine_t made = [] {
        check_library();
        dnnl_engine_t one = nullptr;
        check(dnnl_engine_create(&one, dnnl_cpu, 0), "engine");
        return one;
    }();
    return made;
}

bool& multiplies_tiles() {
    static bool found =
        (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
    return found;
}

Layout strided(const Dims& dims, int type, const dnnl_dims_t strides) {
    dnnl_memory_desc_t made = nullptr;
    check(
        dnnl_memory_desc_create_with_strides(&made, static_cast<int>(dims.size()), dims.data(), type, strides),
        "layout");
    return Layout(made);
}

Layout plain(const Dims& dims, int type, int64_t gap) {
    dnnl_dims_t strides;
    int64_t stride = 1;
    for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) strides[i] = stride + (i ? 0 : gap);
    return strided(dims, type, strides);
}

Layout transposed(const Dims& dims, int type) {
    size_t last = dims.size() - 1;
    dnnl_dims_t strides;
    strides[last - 1] = 1;
    strides[last] = dims[last - 1];
    int64_t stride = dims[last - 1] * dims[last];
    for (size_t i = last - 1; i-- > 0; stride *= dims[i]) strides[i] = stride;
    return strided(dims, type, strides);
}

static Layout tagged(const Dims& dims, int type, int tag) {
    dnnl_memory_desc_t made = nullptr;
    check(dnnl_memory_desc_create_with_tag(&made, static_cast<int>(dims.size()), dims.data(), type, tag), "layout");
    return Layout(made);
}

Layout any(const Dims& dims, int type) { return tagged(dims, type, dnnl_format_tag_any); }

Layout images(const Dims& dims, int type, Order order) {
    if (order == Order::channels_first) return plain(dims, type);
    if (order == Order::blocks) return tagged(dims, type, block() == 16 ? dnnl_aBcd16b : dnnl_aBcd8b);
    dnnl_dims_t strides = {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
    return strided(dims, type, strides);
}

Attributes attributes() {
    dnnl_primitive_attr_t made = nullptr;
    check(dnnl_primitive_attr_create(&made), "attributes");
    Attributes owned(made);
    check(dnnl_primitive_attr_set_scratchpad_mode(made, dnnl_scratchpad_mode_user), "attributes");
    return owned;
}

Concurrency::Concurrency(int threads) {
    check(dnnl_threadpool_interop_get_max_concurrency(&before_), "threads");
    check(dnnl_threadpool_interop_set_max_concurrency(threads), "threads");
}

Concurrency::~Concurrency() { dnnl_threadpool_interop_set_max_concurrency(before_); }

Products products(int32_t setting) {
    if (setting < 0 || setting > 2) throw Error("products are wanted as 0, 1 or 2, not " + std::to_string(setting));
    return static_cast<Products>(setting);
}

Conversion Multiplication::conversion(Type type, bool is_factor) const {
    if (type == Type::float16) return Conversion::float16;
    if (products != Products::emulated) return Conversion::none;
    if (type == Type::bfloat16) return Conversion::bfloat16;
    return is_factor ? Conversion::rounded : Conversion::none;
}

static bool converted(Conversion conversion) { return conversion != Conversion::none; }

Plan::Plan(Description description, std::vector<Operand> operands, int threads) : threads_(threads) {
    size_t scratch = 0;
    auto needs = [&](const Description& of) {
        const_dnnl_memory_desc_t layout =
            dnnl_primitive_desc_query_md(of.get(), dnnl_query_exec_arg_md, DNNL_ARG_SCRATCHPAD);
        size_t bytes = layout ? dnnl_memory_desc_get_size(layout) : 0;
        scratch = std::max(scratch, bytes);
        scratch_layouts_.push_back(bytes ? copy(layout) : nullptr);
        return scratch_layouts_.size() - 1;
    };
    auto reserve = [&](size_t bytes) {
        size_t at = bytes_;
        bytes_ += aligned(bytes);
        return at;
    };
    for (Operand& operand : operands) {
        const_dnnl_memory_desc_t wanted =
            dnnl_primitive_desc_query_md(description.get(), dnnl_query_exec_arg_md, operand.arg);
        if (!wanted) throw Error("oneDNN: no layout for argument " + std::to_string(operand.arg));
        Placed placed{
            operand.arg, operand.output, 1, std::move(operand.outer), nullptr, nullptr, 0, operand.conversion, 0, 0, 0};
        for (int64_t size : operand.dims) placed.count *= size;
        if (converted(placed.conversion)) placed.whole_at = reserve(placed.count * sizeof(float));
        if (!dnnl_memory_desc_equal(wanted, placed.outer.get())) {
            if (operand.in_one_set) {
                placed.outer = plain(operand.dims, dnnl_f32, LINE);
                placed.rows = operand.dims[0];
                placed.whole_at = reserve((placed.count + placed.rows * LINE) * sizeof(float));
            }
            placed.inner = copy(wanted);
            placed.inner_at = reserve(dnnl_memory_desc_get_size(wanted));
            Description between =
                operand.output ? reorder(placed.inner, placed.outer) : reorder(placed.outer, placed.inner);
            placed.reorder_scratch = needs(between);
            placed.reorder = primitive(between);
        }
        placed_.push_back(std::move(placed));
    }
    needs(description);
    scratch_at_ = reserve(scratch);
    primitive_ = primitive(description);
}

std::shared_ptr<const Plan> make_copy(const Dims& dims, Layout from, Layout to, int threads) {
    Concurrency planned_for(threads);
    Description copying = reorder(from, to);
    std::vector<Operand> operands;
    operands.push_back({DNNL_ARG_SRC, false, dims, std::move(from), Conversion::none});
    operands.push_back({DNNL_ARG_DST, true, dims, std::move(to), Conversion::none});
    return std::make_shared<const Plan>(std::move(copying), std::move(operands), threads);
}

void Plan::run(const std::vector<void*>& tensors) const {
    WorkspaceLease workspace;
    char* base = bytes_ ? workspace->memory.at_least(bytes_) : nullptr;
    dnnl_stream_t stream = workspace->stream(threads_);
    auto execute = [&](const Primitive& what, std::vector<dnnl_exec_arg_t> arguments, const Layout& scratch) {
        Memory aside = scratch ? memory(scratch, base + scratch_at_) : nullptr;
        if (aside) arguments.push_back({DNNL_ARG_SCRATCHPAD, aside.get()});
        check(
            dnnl_primitive_execute(what.get(), stream, static_cast<int>(arguments.size()), arguments.data()),
            "execution");
        check(dnnl_stream_wait(stream), "wait");
    };
    std::vector<Memory> outer, inner;
    std::vector<dnnl_exec_arg_t> arguments;
    for (size_t i = 0; i < placed_.size(); ++i) {
        const Placed& placed = placed_[i];
        bool apart = converted(placed.conversion) || placed.rows;
        char* whole = apart ? base + placed.whole_at : static_cast<char*>(tensors[i]);
        outer.push_back(memory(placed.outer, whole));
        inner.push_back(placed.inner ? memory(placed.inner, base + placed.inner_at) : nullptr);
        arguments.push_back({placed.arg, (placed.inner ? inner : outer)[i].get()});
        if (placed.output) continue;
        if (converted(placed.conversion))
            widen(placed.conversion, tensors[i], reinterpret_cast<float*>(whole), placed.count, threads_);
        if (placed.inner)
            execute(
                placed.reorder, {{DNNL_ARG_SRC, outer[i].get()}, {DNNL_ARG_DST, inner[i].get()}},
                scratch_layouts_[placed.reorder_scratch]);
    }
    execute(primitive_, arguments, scratch_layouts_.back());
    for (size_t i = 0; i < placed_.size(); ++i) {
        const Placed& placed = placed_[i];
        if (!placed.output) continue;
        if (placed.inner)
            execute(
                placed.reorder, {{DNNL_ARG_SRC, inner[i].get()}, {DNNL_ARG_DST, outer[i].get()}},
                scratch_layouts_[placed.reorder_scratch]);
        if (converted(placed.conversion))
            narrow(
                placed.conversion, reinterpret_cast<float*>(base + placed.whole_at), tensors[i], placed.count,
                threads_);
        if (placed.rows) {
            const float* from = reinterpret_cast<float*>(base + placed.whole_at);
            int64_t length = placed.count / placed.rows;
            thread_pool(threads_)->parallel_for(threads_, [&](int part, int of) {
                for (int64_t row = placed.rows * part / of; row < placed.rows * (part + 1) / of; ++row)
                    std::copy_n(
                        from + row * (length + LINE), length, static_cast<float*>(tensors[i]) + row * length);
            });
        }
    }
}

}  // namespace msaccel
