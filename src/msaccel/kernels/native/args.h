// The arguments of an operator: `ops.Custom(func_type="aot")` passes all inputs, then all outputs.
//
// Errors are thrown as C++ exceptions, which MindSpore turns into Python exceptions with the same message.
#pragma once

#include <algorithm>
#include <cstring>

#include "handles.h"
#include "vector.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Begins the definition of the operator msaccel_<name>, which returns 0.
#define OPERATOR(name) \
    EXPORTED int msaccel_##name( \
        int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*)

namespace msaccel {

// A batch of images (n, c, h, w), in blocks if the tensor has five dimensions.
struct Image {
    Dims dims;
    Order order;

    bool operator==(const Image& other) const { return dims == other.dims && order == other.order; }
    int together() const { return order == Order::blocks ? block() : 1; }  // channels that lie side by side
};

// The tensors of one call; reading one checks its type and rank.
struct Args {
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

    Type type(int of) const {
        if (!std::strcmp(types[of], "float32")) return Type::float32;
        if (!std::strcmp(types[of], "float16")) return Type::float16;
        if (!std::strcmp(types[of], "bfloat16")) return Type::bfloat16;
        throw Error(std::string("these operators compute in float32, float16 or bfloat16, not ") + types[of]);
    }

    Dims dims(int of, int rank, Type wanted = Type::float32) const {
        if (ranks[of] != rank)
            throw Error(
                "tensor " + std::to_string(of) + " has " + std::to_string(ranks[of]) + " dimensions, not " +
                std::to_string(rank));
        if (type(of) != wanted)
            throw Error("tensor " + std::to_string(of) + " is of type " + types[of] + ", others are not");
        return Dims(shapes[of], shapes[of] + rank);
    }

    // In the plain layout or, but for float16, the blocked one.
    Image image(int of, Type wanted = Type::float32) const {
        if (ranks[of] != 5) return {dims(of, 4, wanted), Order::channels_first};
        Dims blocks = dims(of, 5, wanted == Type::float16 ? Type::float32 : wanted);
        if (blocks[4] != block()) throw Error("a blocked tensor ends with " + std::to_string(block()) + " channels");
        return {{blocks[0], blocks[1] * block(), blocks[2], blocks[3]}, Order::blocks};
    }

    // The number of elements of a float32 tensor of any shape.
    int64_t elements(int of) const {
        if (type(of) != Type::float32)
            throw Error("tensor " + std::to_string(of) + " is of type " + types[of] + ", float32 is wanted");
        int64_t product = 1;
        for (int i = 0; i < ranks[of]; ++i) product *= shapes[of][i];
        return product;
    }

    float* floats(int of) const { return static_cast<float*>(data[of]); }

    // The same of a tensor that must have this shape; `name` is the operator's.
    float* floats(int of, const Dims& wanted, const char* name) const {
        if (dims(of, static_cast<int>(wanted.size())) != wanted)
            throw Error(std::string("the shapes of ") + name + " do not belong together");
        return floats(of);
    }

    // The numbers of elements of consecutive tensors.
    std::vector<int64_t> sizes(int first, int how_many) const {
        std::vector<int64_t> all;
        for (int i = first; i < first + how_many; ++i) all.push_back(elements(i));
        return all;
    }

    // The number of tensors in each of `groups` consecutive groups, such as gradients and weights, between `before` and
    // `after` other tensors. Corresponding tensors of the groups must have the same size.
    int tensors_of(const char* name, int before, int groups, int after) const {
        int tensors = (count - before - after) / groups, all = before + groups * tensors + after;
        must_have(name, std::max(all, before + groups + after), all);
        for (int i = before; i < before + groups * tensors; ++i)
            if (elements(i) != elements(before + (i - before) % tensors))
                throw Error(std::string("in ") + name + " tensors that belong together have other sizes");
        return tensors;
    }

    // Settings and labels, passed as an int32 vector.
    const int32_t* numbers(int of, int64_t how_many) const {
        if (ranks[of] != 1 || shapes[of][0] != how_many || std::strcmp(types[of], "int32"))
            throw Error("the settings are wanted as an int32 tensor of " + std::to_string(how_many));
        return static_cast<const int32_t*>(data[of]);
    }
};

}  // namespace msaccel
