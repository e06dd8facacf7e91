#include "channel_rows.h"

#include "vector.h"

namespace msaccel {

constexpr int64_t KIND = 5;  // in keys of plans, behind that of Winograd's copies

void copy_rows(
    bool back, const Images& images, void* image_data, const Sides& stride, const Rows& rows, void* row_data,
    int threads) {
    constexpr Multiplication multiplied{Products::bfloat16};
    int of_images = multiplied.tensor(images.type), of_rows = multiplied.tensor(rows.type);
    const Dims& dims = images.dims;
    Key key = {KIND, back, static_cast<int64_t>(images.order), of_images, of_rows, threads, stride[0], stride[1]};
    key.insert(key.end(), {rows.image, rows.line, rows.pixel});
    key.insert(key.end(), dims.begin(), dims.end());
    auto plan = plan_cache().get(key, [&] {
        int64_t height = dims[2], width = dims[3];
        int64_t channels = images.order == Order::channels_last ? dims[1] : images.order == Order::blocks ? block() : 1;
        Dims copied = {dims[0], dims[1] / channels, height / stride[0], width / stride[1], channels};
        dnnl_dims_t in_images = {
            dims[1] * height * width, height * width * channels, stride[0] * width * channels, stride[1] * channels, 1};
        dnnl_dims_t in_rows = {rows.image, channels, rows.line, rows.pixel, 1};
        Layout from = strided(copied, of_images, in_images), to = strided(copied, of_rows, in_rows);
        if (back) std::swap(from, to);
        return make_copy(copied, std::move(from), std::move(to), threads);
    });
    back ? plan->run({row_data, image_data}) : plan->run({image_data, row_data});
}

}  // namespace msaccel
