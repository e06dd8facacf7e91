// The training loss: softmax with mean cross entropy, the number of correctly classified samples, and the gradient.
//
// With smoothing s the target q is 1 − s for the label and s / (classes − 1) for each other class, as in
// `CrossEntropySmooth` of tutorials 003 and 004. For logits z (n, classes) and p = softmax(z):
//
//     loss = −Σ q · log p / n,  gradient of z = (p − q) / n
#include <algorithm>
#include <cmath>

#include "args.h"

using namespace msaccel;

namespace {

struct Targets {
    int64_t rows, classes;
    const int32_t* labels;
    double others, more;  // target of every class, and what is added to it for the label

    Targets(const Args& args, int logits)
        : rows(args.dims(logits, 2)[0]), classes(args.dims(logits, 2)[1]) {
        labels = args.numbers(logits + 1, rows);
        for (int64_t row = 0; row < rows; ++row)
            if (labels[row] < 0 || labels[row] >= classes)
                throw Error(
                    "label " + std::to_string(labels[row]) + " is none of " + std::to_string(classes) + " classes");
        float smoothing = args.floats(logits + 2)[0];
        others = classes > 1 ? smoothing / static_cast<float>(classes - 1) : 0;
        more = 1.0 - smoothing - others;
    }
};

}  // namespace

// logits (n, c), labels (n) int32, (smoothing) → mean loss, correctly classified
OPERATOR(cross_entropy) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("cross entropy", 5, 5);
    Targets targets(args, 0);
    const float* z = args.floats(0);
    double loss = 0;
    int64_t right = 0, classes = targets.classes;
    for (int64_t row = 0; row < targets.rows; ++row, z += classes) {
        const float* largest = std::max_element(z, z + classes);
        double total = 0, sum = 0;
        for (int64_t i = 0; i < classes; ++i) {
            total += std::exp(z[i] - *largest);
            sum += z[i];
        }
        double normaliser = *largest + std::log(total);  // log Σ exp z
        loss += targets.more * (normaliser - z[targets.labels[row]]);
        if (targets.others > 0) loss += targets.others * (static_cast<double>(classes) * normaliser - sum);
        right += largest - z == targets.labels[row];
    }
    *args.floats(3) = static_cast<float>(loss / static_cast<double>(targets.rows));
    *args.floats(4) = static_cast<float>(right);
    return 0;
}

// gradient of the loss, logits (n, c), labels (n) int32, (smoothing) → gradient of the logits (n, c)
OPERATOR(cross_entropy_gradient) {
    Args args{count, data, ranks, shapes, types};
    args.must_have("the gradient of cross entropy", 5, 5);
    Targets targets(args, 1);
    if (args.dims(4, 2) != args.dims(1, 2))
        throw Error("the gradient of cross entropy has another shape than the logits");
    double share = *args.floats(0) / static_cast<double>(targets.rows);
    const float* z = args.floats(1);
    float* gradient = args.floats(4);
    int64_t classes = targets.classes;
    for (int64_t row = 0; row < targets.rows; ++row, z += classes, gradient += classes) {
        float largest = *std::max_element(z, z + classes);
        double total = 0;
        for (int64_t i = 0; i < classes; ++i) total += gradient[i] = std::exp(z[i] - largest);
        float scale = static_cast<float>(share / total), elsewhere = static_cast<float>(share * targets.others);
        for (int64_t i = 0; i < classes; ++i) gradient[i] = gradient[i] * scale - elsewhere;
        gradient[targets.labels[row]] -= static_cast<float>(share * targets.more);
    }
    return 0;
}
