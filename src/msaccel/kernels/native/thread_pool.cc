// Sleeping workers. The parts of a parallel region are handed out one by one, also to the calling thread, so it never
// waits for a worker that is still waking up. A second region at the same time runs on its caller alone. The result
// depends on the number of parts, not on which thread computes them, so it does not depend on the machine's load.
#include "thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace msaccel {
namespace {

// With less than twice this, handing a part to another thread costs more than it saves.
constexpr double OPERATIONS_PER_THREAD = 3e6;
// About 200 µs, the time between two regions of a small network's update; waking a sleeping worker takes up to 50 µs.
// After these spins a worker sleeps. A spinning worker yields, so other threads can use its processor.
constexpr int SPINS = 6000, SPINS_TO_YIELD = 32;
constexpr int MOST_THREADS = 256;

thread_local bool in_parallel = false;

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

void wait_a_little(int spin) {
    pause();
    if (spin % SPINS_TO_YIELD == SPINS_TO_YIELD - 1) std::this_thread::yield();
}

// Marks the thread as one that computes a part, until the end of the scope.
class InParallel {
  public:
    InParallel() { in_parallel = true; }
    ~InParallel() { in_parallel = before_; }

  private:
    bool before_ = in_parallel;
};

// All parts on the calling thread.
void alone(int n, const std::function<void(int, int)>& function) {
    InParallel marked;
    for (int part = 0; part < n; ++part) function(part, n);
}

class Workers {
  public:
    explicit Workers(int count) {
        for (int i = 0; i < count; ++i) std::thread([this] { live(); }).detach();
    }

    void run(int n, const std::function<void(int, int)>& function) {
        std::unique_lock<std::mutex> region(region_, std::try_to_lock);
        if (!region.owns_lock()) return alone(n, function);
        std::unique_lock<std::mutex> lock(mutex_);
        function_ = &function;
        parts_ = n;
        next_ = 0;
        regions_.fetch_add(1, std::memory_order_release);
        lock.unlock();
        wake_.notify_all();  // without the lock, or the workers would wake up only to wait for it
        lock.lock();
        work(lock);
        for (int spin = 0; running_ > 0 && spin < SPINS; ++spin) {
            lock.unlock();
            wait_a_little(spin);
            lock.lock();
        }
        done_.wait(lock, [this] { return running_ == 0; });
        function_ = nullptr;
        if (std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
    }

  private:
    // Takes parts until none is left. The lock is held at entry and at return.
    void work(std::unique_lock<std::mutex>& lock) {
        while (next_ < parts_) {
            int part = next_++;
            int parts = parts_;
            const std::function<void(int, int)>* function = function_;
            ++running_;
            lock.unlock();
            std::exception_ptr error;
            try {
                InParallel marked;
                (*function)(part, parts);
            } catch (...) {
                error = std::current_exception();
            }
            lock.lock();
            if (error) {  // the caller gets the first one; parts that nobody has begun are left out
                if (!error_) error_ = error;
                next_ = parts_;
            }
            if (--running_ == 0 && next_ >= parts_) done_.notify_one();
        }
    }

    void live() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (true) {
            work(lock);
            unsigned seen = regions_.load(std::memory_order_acquire);
            lock.unlock();
            for (int spin = 0; regions_.load(std::memory_order_acquire) == seen && spin < SPINS; ++spin)
                wait_a_little(spin);
            lock.lock();
            wake_.wait(lock, [this] { return next_ < parts_; });
        }
    }

    std::mutex region_, mutex_;
    std::condition_variable wake_, done_;
    const std::function<void(int, int)>* function_ = nullptr;
    int parts_ = 0, next_ = 0, running_ = 0;
    std::exception_ptr error_;
    std::atomic<unsigned> regions_{0};
};

// Started by the first region that needs them, and never destroyed: the process may end while they sleep.
Workers& workers() {
    static Workers* all = new Workers(job_threads() - 1);
    return *all;
}

class ThreadPool final : public dnnl::threadpool_interop::threadpool_iface {
  public:
    explicit ThreadPool(int threads) : threads_(threads) {}
    int get_num_threads() const override { return threads_; }
    bool get_in_parallel() const override { return in_parallel; }
    uint64_t get_flags() const override { return 0; }
    void wait() override {}

    void parallel_for(int n, const std::function<void(int, int)>& function) override {
        if (n > 1 && threads_ > 1 && !in_parallel) {
            workers().run(n, function);
        } else {
            alone(n, function);
        }
    }

  private:
    int threads_;
};

}  // namespace

int job_threads() {
    static const int threads = [] {
        const char* said = std::getenv("OMP_NUM_THREADS");
        return std::clamp(said ? std::atoi(said) : 1, 1, MOST_THREADS);
    }();
    return threads;
}

int threads_for(double operations) {
    return std::clamp(static_cast<int>(operations / OPERATIONS_PER_THREAD), 1, job_threads());
}

dnnl::threadpool_interop::threadpool_iface* thread_pool(int threads) {
    static ThreadPool** pools = [] {
        ThreadPool** all = new ThreadPool*[MOST_THREADS + 1];
        for (int count = 0; count <= MOST_THREADS; ++count) all[count] = new ThreadPool(count);
        return all;
    }();
    return pools[threads];
}

}  // namespace msaccel
