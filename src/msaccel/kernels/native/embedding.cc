// The rows of a table that characters choose, plus the row of their position in the block:
//
//     y[n, t] = table[x[n, t]] + positions[t]
//     dtable[v] = Σ dy[n, t] where x[n, t] = v,  dpositions[t] = Σ dy[n, t] over n
//
// In the gradient threads divide the columns, so each sum has the same order for any number of threads.
#include "args.h"
#include "thread_pool.h"

using namespace msaccel;

namespace {

struct Lookup {
    const int32_t* x;
    int64_t rows, block, vocabulary, width;

    // `table` and `positions` are the indices of tensors of these shapes; y has a row for each character.
    Lookup(const Args& args, int characters, int table, int positions, int y)
        : rows(args.dims(y, 2)[0]), block(args.dims(positions, 2)[0]), vocabulary(args.dims(table, 2)[0]),
          width(args.dims(table, 2)[1]) {
        if (block < 1 || rows % block || args.dims(positions, 2)[1] != width || args.dims(y, 2)[1] != width)
            throw Error("the shapes of an embedding do not belong together");
        x = args.numbers(characters, rows);
        for (int64_t i = 0; i < rows; ++i)
            if (x[i] < 0 || x[i] >= vocabulary)
                throw Error(
                    "character " + std::to_string(x[i]) + " is none of a vocabulary of " + std::to_string(vocabulary));
    }

    // Calls work(begin, end) for parts of 0 to `of`, on as many threads as pay.
    template <typename Work>
    void divided(int64_t of, const Work& work) const {
        int threads = threads_for(4.0 * static_cast<double>(rows) * static_cast<double>(width));
        int parts = static_cast<int>(std::min<int64_t>(threads, of));
        thread_pool(threads)->parallel_for(
            parts, [&](int part, int all) { work(of * part / all, of * (part + 1) / all); });
    }
};

}  // namespace

// x (n · t) int32, table (v, c), positions (t, c) → y (n · t, c)
OPERATOR(embedding) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("an embedding", 4, 4);
    Lookup at(args, 0, 1, 2, 3);
    const float *table = args.floats(1), *positions = args.floats(2);
    float* y = args.floats(3);
    at.divided(at.rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const float *chosen = table + at.x[row] * at.width, *position = positions + row % at.block * at.width;
            for (int64_t i = 0; i < at.width; ++i) y[row * at.width + i] = chosen[i] + position[i];
        }
    });
    return 0;
}

// x, dy (n · t, c), table and positions (for their shapes) → dtable (v, c), dpositions (t, c)
OPERATOR(embedding_gradient) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the gradient of an embedding", 6, 6);
    Lookup at(args, 0, 2, 3, 1);
    const float* dy = args.floats(1);
    float* dtable = args.floats(4, args.dims(2, 2), "an embedding");
    float* dpositions = args.floats(5, args.dims(3, 2), "an embedding");
    std::fill(dtable, dtable + at.vocabulary * at.width, 0.0f);
    std::fill(dpositions, dpositions + at.block * at.width, 0.0f);
    at.divided(at.width, [&](int64_t begin, int64_t end) {
        for (int64_t row = 0; row < at.rows; ++row) {
            float *chosen = dtable + at.x[row] * at.width, *position = dpositions + row % at.block * at.width;
            for (int64_t i = begin; i < end; ++i) {
                chosen[i] += dy[row * at.width + i];
                position[i] += dy[row * at.width + i];
            }
        }
    });
    return 0;
}
