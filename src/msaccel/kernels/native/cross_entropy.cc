// The training loss in one operator: softmax and mean cross entropy, its gradient, and how many samples are right.
//
// With smoothing s the target q is 1 − s for the label and s / (classes − 1) for each other class, as in
// `CrossEntropySmooth` of tutorials 003 and 004. For logits z (n, classes) and p = softmax(z):
//
//     loss = −Σ q · log p / n,  gradient of z = (p − q) / n
#include <cmath>

#include "call.h"

using namespace msaccel;

// logits (n, c), labels (n) int32, (smoothing) → mean loss, correctly classified, gradient of the logits (n, c)
EXPORTED int msaccel_cross_entropy(
    int count, void** data, int* ranks, int64_t** shapes, const char** types, void*, void*) {
    Call call{count, data, ranks, shapes, types};
    call.must_have("cross entropy", 6, 6);
    Dims dims = call.dims(0, 2, false);
    int64_t rows = dims[0], classes = dims[1];
    if (call.dims(5, 2, false) != dims) throw Error("the gradient of cross entropy has another shape than the logits");
    const float* z = static_cast<float*>(data[0]);
    const int32_t* labels = call.numbers(1, rows);
    float smoothing = static_cast<float*>(data[2])[0];
    float others = classes > 1 ? smoothing / static_cast<float>(classes - 1) : 0;
    float* gradient = static_cast<float*>(data[5]);
    double loss = 0;
    int64_t right = 0;
    for (int64_t row = 0; row < rows; ++row, z += classes, gradient += classes) {
        int32_t label = labels[row];
        if (label < 0 || label >= classes)
            throw Error("label " + std::to_string(label) + " is none of " + std::to_string(classes) + " classes");
        float largest = z[0];
        int64_t place = 0;
        for (int64_t i = 1; i < classes; ++i)
            if (z[i] > largest) largest = z[i], place = i;
        double total = 0, sum = 0;
        for (int64_t i = 0; i < classes; ++i) {
            float power = std::exp(z[i] - largest);
            gradient[i] = power;
            total += power;
            sum += z[i];
        }
        double normaliser = largest + std::log(total);  // log Σ exp z
        double row_loss = (1.0 - smoothing - others) * (normaliser - z[label]);
        if (others > 0) row_loss += others * (static_cast<double>(classes) * normaliser - sum);
        loss += row_loss;
        right += place == label;
        float scale = static_cast<float>(1 / (total * static_cast<double>(rows))), share = 1.0f / rows;
        for (int64_t i = 0; i < classes; ++i) gradient[i] = gradient[i] * scale - others * share;
        gradient[label] -= (1 - smoothing - others) * share;
    }
    *static_cast<float*>(data[3]) = static_cast<float>(loss / static_cast<double>(rows));
    *static_cast<float*>(data[4]) = static_cast<float>(right);
    return 0;
}
