// The thread pool that oneDNN's primitives and the loops here run on.
#pragma once

#include "onednn.h"

namespace msaccel {

// Threads of the job: OMP_NUM_THREADS, which the launcher sets; read once. Not the number of free processors, because
// another number of parts rounds differently.
int job_threads();

// Threads for this many floating-point operations; depends only on that number and on `job_threads`.
int threads_for(double operations);

// A pool of this many threads for oneDNN; all pools share the same workers. Lives as long as the process.
dnnl::threadpool_interop::threadpool_iface* thread_pool(int threads);

}  // namespace msaccel
