// Copies of images in which all channels of a pixel lie side by side, as oneDNN wants them for products by AMX.
#pragma once

#include "convolution.h"

namespace msaccel {

// Images (n, c, h, w) in memory.
struct Images {
    Dims dims;
    Order order;
    Type type;  // float32 or bfloat16
};

// A row of c channels for each pixel.
struct Rows {
    Type type;
    int64_t image, line, pixel;  // elements between two images, lines and pixels
};

// Copies images into rows, or with `back` rows into images: every stride-th pixel from the first of each image on. The
// strides must divide the height and the width: otherwise less than a stride lies behind the last of these pixels, and
// oneDNN would refuse their distances as overlapping.
void copy_rows(
    bool back, const Images& images, void* image_data, const Sides& stride, const Rows& rows, void* row_data,
    int threads);

}  // namespace msaccel
