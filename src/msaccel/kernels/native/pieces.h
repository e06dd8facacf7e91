// Many tensors as one row of pieces, each within a tensor, which threads share out among themselves.
#pragma once

#include <algorithm>
#include <vector>

#include "team.h"

namespace msaccel {

struct Pieces {
    struct Piece {
        int tensor;
        int64_t begin, size;
    };
    std::vector<Piece> all;

    explicit Pieces(const std::vector<int64_t>& sizes) {
        for (size_t i = 0; i < sizes.size(); ++i) {
            elements_ += sizes[i];
            for (int64_t at = 0; at < sizes[i]; at += LENGTH)
                all.push_back({static_cast<int>(i), at, std::min(LENGTH, sizes[i] - at)});
        }
    }

    // Calls work(number of the piece, piece) for all of them.
    template <typename Work>
    void each(const Work& work) const {
        int count = static_cast<int>(all.size());
        int threads = std::min(count, threads_for(OPERATIONS_PER_ELEMENT * static_cast<double>(elements_)));
        team(threads)->parallel_for(threads, [&](int part, int of) {
            for (int i = count * part / of; i < count * (part + 1) / of; ++i) work(i, all[i]);
        });
    }

  private:
    static constexpr double OPERATIONS_PER_ELEMENT = 8;
    static constexpr int64_t LENGTH = 1 << 16;  // what one thread takes at a time; sums are the same for any threads
    int64_t elements_ = 0;
};

}  // namespace msaccel
