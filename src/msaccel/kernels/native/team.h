// The threads that oneDNN's primitives run on.
#pragma once

#include "onednn.h"

namespace msaccel {

// Threads of the job, as its launcher says in OMP_NUM_THREADS; read once. Never the processors that happen to be
// free: another number of parts rounds differently.
int job_threads();

// Threads for work of so many floating-point operations: a function of the shape and of `job_threads` alone.
int threads_for(double operations);

// So many threads as oneDNN sees them; all teams share the same workers. Lives as long as the process.
dnnl::threadpool_interop::threadpool_iface* team(int threads);

}  // namespace msaccel
