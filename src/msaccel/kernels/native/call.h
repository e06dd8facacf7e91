// How MindSpore calls an operator: `ops.Custom(func_type="aot")` passes all inputs, then all outputs.
//
// Errors leave as exceptions, which MindSpore turns into a Python exception with their message.
#pragma once

#include <algorithm>
#include <cstring>

#include "objects.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace msaccel {

// A tensor of pictures: (n, c, h, w), or in the blocked layout (n, c / 16, h, w, 16), which is oneDNN's nChw16c.
struct Picture {
    Dims dims;  // n, c, h, w
    bool blocked;

    bool operator==(const Picture& other) const { return dims == other.dims && blocked == other.blocked; }
};

// The tensors of one call, read with their types and ranks checked.
struct Call {
    int count;
    void** data;
    const int* ranks;
    int64_t* const* shapes;
    const char* const* types;

    void must_have(const char* name, int fewest, int most) const {
        if (count < fewest || count > most)
            throw Error(
                std::string(name) + " takes " + std::to_string(fewest) + " to " + std::to_string(most) +
                " tensors, not " + std::to_string(count));
    }

    bool half(int of) const {
        if (!std::strcmp(types[of], "float32")) return false;
        if (!std::strcmp(types[of], "float16")) return true;
        throw Error(std::string("these operators compute in float32 or float16, not ") + types[of]);
    }

    Dims dims(int of, int rank, bool wanted_half) const {
        if (ranks[of] != rank)
            throw Error(
                "tensor " + std::to_string(of) + " has " + std::to_string(ranks[of]) + " dimensions, not " +
                std::to_string(rank));
        if (half(of) != wanted_half)
            throw Error("tensor " + std::to_string(of) + " is of type " + types[of] + ", others are not");
        return Dims(shapes[of], shapes[of] + rank);
    }

    // Plain or, in float32 only, blocked.
    Picture picture(int of, bool wanted_half = false) const {
        if (ranks[of] != 5) return {dims(of, 4, wanted_half), false};
        Dims blocks = dims(of, 5, false);
        if (blocks[4] != BLOCK) throw Error("a blocked tensor ends with " + std::to_string(BLOCK) + " channels");
        return {{blocks[0], blocks[1] * BLOCK, blocks[2], blocks[3]}, true};
    }

    // Of a float32 tensor of any shape.
    int64_t elements(int of) const {
        if (half(of)) throw Error("tensor " + std::to_string(of) + " is of type float16, float32 is wanted");
        int64_t product = 1;
        for (int i = 0; i < ranks[of]; ++i) product *= shapes[of][i];
        return product;
    }

    float* floats(int of) const { return static_cast<float*>(data[of]); }

    // The elements of some tensors that follow each other.
    std::vector<int64_t> sizes(int first, int how_many) const {
        std::vector<int64_t> all;
        for (int i = first; i < first + how_many; ++i) all.push_back(elements(i));
        return all;
    }

    // How many tensors a group has, where groups of tensors of the same sizes stand behind `before` others and ahead of
    // `after` others.
    int tensors_of(const char* name, int before, int groups, int after) const {
        int tensors = (count - before - after) / groups, all = before + groups * tensors + after;
        must_have(name, std::max(all, before + groups + after), all);
        for (int i = before; i < before + groups * tensors; ++i)
            if (elements(i) != elements(before + (i - before) % tensors))
                throw Error(std::string("in ") + name + " tensors that belong together have other sizes");
        return tensors;
    }

    // What is no tensor stands in an int32 tensor of its own.
    const int32_t* numbers(int of, int64_t how_many) const {
        if (ranks[of] != 1 || shapes[of][0] != how_many || std::strcmp(types[of], "int32"))
            throw Error("the settings are wanted as an int32 tensor of " + std::to_string(how_many));
        return static_cast<const int32_t*>(data[of]);
    }
};

}  // namespace msaccel
