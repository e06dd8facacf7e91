"""Fashion-MNIST: clothes, in the form of MNIST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msaccel.data.download.sources import Package, Source
from msaccel.schema import IdxDataSettings

if TYPE_CHECKING:
    from msaccel.data.dataset import DatasetSplits

TITLE = "Fashion-MNIST"
SETTINGS = IdxDataSettings
SOURCE = Source(
    name="fashion_mnist",
    files={
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ),
    package=Package("apt-get", "dataset-fashion-mnist", "./usr/share/datasets/fashion-mnist/{}.gz"),
)


def load(settings: IdxDataSettings, seed: int, shape: tuple[int, ...]) -> DatasetSplits:
    from msaccel.data.idx import load

    return load(settings, SOURCE)
