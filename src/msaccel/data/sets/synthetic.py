"""Seeded images in the shape that the network reads, for tests and benchmarks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.schema import DataSettings, ModelSettings, setting

if TYPE_CHECKING:
    from msaccel.data.dataset import DatasetSplits

MAX_BYTES = 16 * 10**9  # one per pixel and channel; all of them are held in memory


@dataclass
class SyntheticSettings(DataSettings):
    transforms = ("lenet32", "mlp28", "small")
    seeded = True
    train_size: int = setting(at_least=1, example="1024")
    test_size: int = setting(at_least=1, example="256")
    channels: int | None = setting(at_least=1, example="null for what the model reads, or 1")
    height: int | None = setting(at_least=1, example="null for what the model reads, or 32")
    width: int | None = setting(at_least=1, example="null for what the model reads, or 32")
    classes: int = setting(at_least=2, example="10")

    def class_count(self) -> int:
        return self.classes

    def train_count(self) -> int:
        return self.train_size

    def refusals(self, model: ModelSettings) -> Iterator[str]:
        shape = model.input_shape()
        size = (self.train_size + self.test_size) * math.prod(shape)
        if size > MAX_BYTES:
            yield (
                f"data.train_size={self.train_size} and data.test_size={self.test_size} make {size / 1e9:,.0f} GB of "
                f"images, more than the {MAX_BYTES / 1e9:.0f} GB allowed; write smaller sizes."
            )
        for key, size in zip(("channels", "height", "width"), shape, strict=False):
            if getattr(self, key) not in (None, size):
                read = " × ".join(map(str, shape))
                yield (
                    f"data.{key}={getattr(self, key)} does not fit, since model={model.name} reads {read}; "
                    f"write data.{key}={size}."
                )


TITLE = "synthetic data"
SETTINGS = SyntheticSettings


def load(settings: SyntheticSettings, seed: int, shape: tuple[int, ...]) -> DatasetSplits:
    from msaccel.data.in_memory import in_memory
    from msaccel.data.synthetic_images import generate
    from msaccel.data.transforms import TRANSFORMS

    channels, height, width = shape
    sizes = settings.train_size, settings.test_size
    train, test = generate(sizes, (channels, height, width), settings.classes, seed)
    # mlp28 does not resize: the images have the network's size.
    return in_memory(settings, train, test, settings.classes, TRANSFORMS["mlp28"])
