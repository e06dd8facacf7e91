"""The transforms equal MindSpore's dataset pipelines of the two tutorials, bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindspore import dataset
from mindspore import dtype as mstype
from mindspore.dataset import transforms, vision
from numpy.typing import NDArray

from msaccel.data.idx import read_idx
from msaccel.data.transforms import TRANSFORMS, Images, resize_linear, shrink


def pipeline(name: str) -> list[Any]:
    """The operations as the tutorial writes them, up to HWC2CHW; of `small` for one of its three equal channels."""
    resize = vision.Resize((32, 32), interpolation=vision.Inter.LINEAR)
    normalise = [vision.Rescale(1.0 / 255.0, 0), vision.Normalize(mean=(0.1307,), std=(0.3081,))]
    if name == "mlp28":
        return normalise
    if name == "small":
        return [resize, *normalise]
    return [
        resize,
        vision.Rescale(1 / 0.3081, -1 * 0.1307 / 0.3081),
        vision.Rescale(1.0 / 255.0, 0.0),
    ]


def bits(array: NDArray[Any]) -> NDArray[np.uint32]:
    """Tells apart what == does not, such as 0.0 and -0.0."""
    return np.ascontiguousarray(array).view(np.uint32)


def transform(name: str, images: Images) -> NDArray[np.float32]:
    return TRANSFORMS[name].table[TRANSFORMS[name].resize(images)]


@pytest.mark.parametrize("name", TRANSFORMS)
def test_equals_the_tutorials_pipeline_on_all_test_images(real_mnist: Path, name: str) -> None:
    theirs = dataset.MnistDataset(str(real_mnist), usage="test", shuffle=False)
    theirs = theirs.map([*pipeline(name), vision.HWC2CHW()], "image")
    theirs = theirs.map(transforms.TypeCast(mstype.int32), "label").batch(10_000)
    (batch,) = theirs.create_tuple_iterator(num_epochs=1, output_numpy=True)
    images = read_idx(real_mnist / "t10k-images-idx3-ubyte", (28, 28))[:, None]
    mine = transform(name, images)
    expected = batch[0].repeat(3, axis=1) if name == "small" else batch[0]
    assert mine.shape == expected.shape and mine.dtype == expected.dtype
    np.testing.assert_array_equal(bits(mine), bits(expected))
    np.testing.assert_array_equal(read_idx(real_mnist / "t10k-labels-idx1-ubyte", ()), batch[1])


@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_table_is_right_for_every_byte(name: str) -> None:
    """Real images need not hold all 256 values; a constant image of each does, and resizing keeps it."""
    for value in range(256):
        image = np.full((28, 28, 1), value, np.uint8)
        for operation in pipeline(name):
            image = operation(image)
        assert np.unique(bits(image)) == bits(TRANSFORMS[name].table[value : value + 1])


@pytest.mark.parametrize("old", [(28, 28), (20, 31)])
@pytest.mark.parametrize("new", [(32, 32), (28, 28), (37, 45), (64, 50)])
def test_resizes_noise_like_opencv(old: tuple[int, int], new: tuple[int, int]) -> None:
    """Noise meets every rounding, unlike digits on a black ground."""
    images = np.random.default_rng(0).integers(256, size=(300, 1, *old), dtype=np.uint8)
    resize = vision.Resize(new, interpolation=vision.Inter.LINEAR)
    theirs = [resize(image[0, :, :, None]).reshape(1, *new) for image in images]
    np.testing.assert_array_equal(resize_linear(images, *new), np.stack(theirs))


def test_resizes_every_image_and_channel_alone() -> None:
    images = np.random.default_rng(1).integers(256, size=(515, 3, 9, 7), dtype=np.uint8)
    comm = resize_linear(images, 12, 10)
    for n, channel in ((0, 0), (255, 1), (256, 2), (514, 0)):
        alone = resize_linear(images[n : n + 1, channel : channel + 1], 12, 10)
        np.testing.assert_array_equal(comm[n, channel], alone[0, 0])


def test_resizes_nothing_to_nothing() -> None:
    assert resize_linear(np.zeros((0, 1, 28, 28), np.uint8), 32, 32).shape == (0, 1, 32, 32)


def means_of_areas(image: Images, height: int, width: int) -> Images:
    """An image (h, w) drawn so fine that every new pixel is a block, and the blocks' means, in whole numbers."""
    fine = image.repeat(height, axis=0).repeat(width, axis=1).astype(int)
    sums = fine.reshape(height, image.shape[0], width, image.shape[1]).sum((1, 3))
    return ((2 * sums + image.size) // (2 * image.size)).astype(np.uint8)


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_a_smaller_image_has_the_means_of_areas(height: int, width: int, data: st.DataObject) -> None:
    new = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    seed = data.draw(st.integers(0, 99))
    images = np.random.default_rng(seed).integers(256, size=(2, 3, height, width), dtype=np.uint8)
    smaller = shrink(images, *new)
    assert smaller.dtype == np.uint8 and smaller.shape == (2, 3, *new)
    for found, image in zip(smaller.reshape(6, *new), images.reshape(6, height, width), strict=True):
        np.testing.assert_array_equal(found, means_of_areas(image, *new))


def test_halves_between_two_bytes_are_rounded_up_and_white_stays_white() -> None:
    images = np.array([[[[1, 2], [2, 1]]], [[[255, 255], [255, 255]]]], np.uint8)
    np.testing.assert_array_equal(shrink(images, 1, 1).ravel(), [2, 255])
    assert (shrink(np.full((1, 3, 1000, 700), 255, np.uint8), 333, 333) == 255).all()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_tables_rise_and_are_float32(name: str) -> None:
    table = TRANSFORMS[name].table
    assert table.shape == (256,) and table.dtype == np.float32
    assert (np.diff(table) > 0).all()
