// The part of oneDNN's C interface that msaccel calls, so that building needs only the compiler's own headers.
//
// Names, values and layouts are those of oneDNN 3 (Apache-2.0, https://uxlfoundation.github.io/oneDNN), the same in all
// versions 3.x; `check_library` in plan.cc checks the version before anything else is called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

extern "C" {

typedef struct dnnl_engine* dnnl_engine_t;
typedef struct dnnl_stream* dnnl_stream_t;
typedef struct dnnl_memory* dnnl_memory_t;
typedef struct dnnl_memory_desc* dnnl_memory_desc_t;
typedef struct dnnl_primitive* dnnl_primitive_t;
typedef struct dnnl_primitive_desc* dnnl_primitive_desc_t;
typedef struct dnnl_primitive_attr* dnnl_primitive_attr_t;
typedef const struct dnnl_memory_desc* const_dnnl_memory_desc_t;
typedef const struct dnnl_primitive* const_dnnl_primitive_t;
typedef const struct dnnl_primitive_desc* const_dnnl_primitive_desc_t;
typedef const struct dnnl_primitive_attr* const_dnnl_primitive_attr_t;

// Enumerations are declared as int, their type in C.
typedef int dnnl_status_t;
enum { dnnl_success = 0, dnnl_out_of_memory = 1, dnnl_invalid_arguments = 2, dnnl_unimplemented = 3 };
enum { dnnl_cpu = 1 };
enum { dnnl_cpu_isa_avx512_core_amx = 0xfef };
enum { dnnl_bf16 = 2, dnnl_f32 = 3 };
enum { dnnl_format_tag_any = 1, dnnl_aBcd16b = 78, dnnl_aBcd8b = 102 };
enum { dnnl_forward_training = 64 };
enum { dnnl_convolution_direct = 1 };
enum { dnnl_query_exec_arg_md = 255 };
enum { dnnl_scratchpad_mode_user = 1 };
enum {
    DNNL_ARG_SRC = 1,
    DNNL_ARG_DST = 17,
    DNNL_ARG_WEIGHTS = 33,
    DNNL_ARG_BIAS = 41,
    DNNL_ARG_SCRATCHPAD = 80,
    DNNL_ARG_DIFF_SRC = 129,
    DNNL_ARG_DIFF_DST = 145,
    DNNL_ARG_DIFF_WEIGHTS = 161,
    DNNL_ARG_DIFF_BIAS = 169,
};
enum { DNNL_RUNTIME_THREADPOOL = 8 };

typedef int64_t dnnl_dims_t[12];

typedef struct {
    int arg;
    dnnl_memory_t memory;
} dnnl_exec_arg_t;

typedef struct {
    int major, minor, patch;
    const char* hash;
    unsigned cpu_runtime, gpu_runtime;
} dnnl_version_t;

const dnnl_version_t* dnnl_version(void);

int dnnl_get_effective_cpu_isa(void);

dnnl_status_t dnnl_engine_create(dnnl_engine_t*, int kind, size_t index);
dnnl_status_t dnnl_stream_wait(dnnl_stream_t);
dnnl_status_t dnnl_stream_destroy(dnnl_stream_t);
dnnl_status_t dnnl_threadpool_interop_stream_create(dnnl_stream_t*, dnnl_engine_t, void* threadpool);
dnnl_status_t dnnl_threadpool_interop_set_max_concurrency(int);
dnnl_status_t dnnl_threadpool_interop_get_max_concurrency(int*);
dnnl_status_t dnnl_threadpool_interop_sgemm(
    char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
    const float* b, int64_t ldb, float beta, float* c, int64_t ldc, void* threadpool);

dnnl_status_t dnnl_memory_create(dnnl_memory_t*, const_dnnl_memory_desc_t, dnnl_engine_t, void* handle);
dnnl_status_t dnnl_memory_destroy(dnnl_memory_t);
dnnl_status_t dnnl_memory_desc_create_with_tag(
    dnnl_memory_desc_t*, int ndims, const dnnl_dims_t, int data_type, int tag);
dnnl_status_t dnnl_memory_desc_create_with_strides(
    dnnl_memory_desc_t*, int ndims, const dnnl_dims_t, int data_type, const dnnl_dims_t strides);
dnnl_status_t dnnl_memory_desc_clone(dnnl_memory_desc_t*, const_dnnl_memory_desc_t);
dnnl_status_t dnnl_memory_desc_destroy(dnnl_memory_desc_t);
int dnnl_memory_desc_equal(const_dnnl_memory_desc_t, const_dnnl_memory_desc_t);
size_t dnnl_memory_desc_get_size(const_dnnl_memory_desc_t);

dnnl_status_t dnnl_primitive_attr_create(dnnl_primitive_attr_t*);
dnnl_status_t dnnl_primitive_attr_destroy(dnnl_primitive_attr_t);
dnnl_status_t dnnl_primitive_attr_set_scratchpad_mode(dnnl_primitive_attr_t, int mode);
dnnl_status_t dnnl_primitive_desc_destroy(dnnl_primitive_desc_t);
const_dnnl_memory_desc_t dnnl_primitive_desc_query_md(const_dnnl_primitive_desc_t, int what, int index);
dnnl_status_t dnnl_primitive_create(dnnl_primitive_t*, const_dnnl_primitive_desc_t);
dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t, dnnl_stream_t, int count, const dnnl_exec_arg_t*);
dnnl_status_t dnnl_primitive_destroy(dnnl_primitive_t);

dnnl_status_t dnnl_reorder_primitive_desc_create(
    dnnl_primitive_desc_t*, const_dnnl_memory_desc_t from, dnnl_engine_t, const_dnnl_memory_desc_t to, dnnl_engine_t,
    const_dnnl_primitive_attr_t);
dnnl_status_t dnnl_matmul_primitive_desc_create(
    dnnl_primitive_desc_t*, dnnl_engine_t, const_dnnl_memory_desc_t a, const_dnnl_memory_desc_t b,
    const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t c, const_dnnl_primitive_attr_t);
dnnl_status_t dnnl_convolution_forward_primitive_desc_create(
    dnnl_primitive_desc_t*, dnnl_engine_t, int prop_kind, int algorithm, const_dnnl_memory_desc_t x,
    const_dnnl_memory_desc_t weight, const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t y,
    const dnnl_dims_t strides, const dnnl_dims_t dilates, const dnnl_dims_t padding_before,
    const dnnl_dims_t padding_after, const_dnnl_primitive_attr_t);
dnnl_status_t dnnl_convolution_backward_data_primitive_desc_create(
    dnnl_primitive_desc_t*, dnnl_engine_t, int algorithm, const_dnnl_memory_desc_t dx, const_dnnl_memory_desc_t weight,
    const_dnnl_memory_desc_t dy, const dnnl_dims_t strides, const dnnl_dims_t dilates,
    const dnnl_dims_t padding_before, const dnnl_dims_t padding_after, const_dnnl_primitive_desc_t forward,
    const_dnnl_primitive_attr_t);
dnnl_status_t dnnl_convolution_backward_weights_primitive_desc_create(
    dnnl_primitive_desc_t*, dnnl_engine_t, int algorithm, const_dnnl_memory_desc_t x, const_dnnl_memory_desc_t dweight,
    const_dnnl_memory_desc_t dbias, const_dnnl_memory_desc_t dy, const dnnl_dims_t strides, const dnnl_dims_t dilates,
    const dnnl_dims_t padding_before, const dnnl_dims_t padding_after, const_dnnl_primitive_desc_t forward,
    const_dnnl_primitive_attr_t);
}

namespace dnnl::threadpool_interop {

// The order of the members is the binary interface. oneDNN calls `wait` from 3.11 on; before, its place held only the
// destructor, which oneDNN never calls.
struct threadpool_iface {
    virtual int get_num_threads() const = 0;
    virtual bool get_in_parallel() const = 0;
    virtual void parallel_for(int n, const std::function<void(int, int)>& function) = 0;
    virtual uint64_t get_flags() const = 0;
    virtual void wait() = 0;
    virtual ~threadpool_iface() = default;
};

}  // namespace dnnl::threadpool_interop
