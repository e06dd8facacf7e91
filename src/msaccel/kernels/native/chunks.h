// Tensors cut into chunks, each within one tensor, that are divided among threads.
#pragma once

#include <algorithm>
#include <vector>

#include "thread_pool.h"

namespace msaccel {

struct Chunks {
    struct Chunk {
        int tensor;
        int64_t begin, size;
    };
    std::vector<Chunk> all;

    explicit Chunks(const std::vector<int64_t>& sizes) {
        for (size_t i = 0; i < sizes.size(); ++i) {
            elements_ += sizes[i];
            for (int64_t at = 0; at < sizes[i]; at += LENGTH)
                all.push_back({static_cast<int>(i), at, std::min(LENGTH, sizes[i] - at)});
        }
    }

    // Calls work(index of the chunk, chunk) for all chunks.
    template <typename Work>
    void each(const Work& work) const {
        int count = static_cast<int>(all.size());
        int threads = std::min(count, threads_for(OPERATIONS_PER_ELEMENT * static_cast<double>(elements_)));
        thread_pool(threads)->parallel_for(threads, [&](int part, int of) {
            for (int i = count * part / of; i < count * (part + 1) / of; ++i) work(i, all[i]);
        });
    }

  private:
    static constexpr double OPERATIONS_PER_ELEMENT = 24;  // in whose time an optimizer's step reads and writes one
    static constexpr int64_t LENGTH = 1 << 16;  // fixed, so that sums do not depend on the threads
    int64_t elements_ = 0;
};

}  // namespace msaccel
