"""The characters of tiny Shakespeare, or of the user's own text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msaccel.data.download.sources import Source
from msaccel.schema import DownloadedDataSettings, ModelSettings

if TYPE_CHECKING:
    from msaccel.data.dataset import DatasetSplits

FILE = "input.txt"


class ShakespeareSettings(DownloadedDataSettings):
    transforms = ("characters",)

    def refusals(self, model: ModelSettings) -> Iterator[str]:
        yield from super().refusals(model)
        if self.val_fraction and getattr(model, "dropout", 0):
            yield (
                f"data.val_fraction={self.val_fraction:g} keeps the blocks where they are, so model.dropout would drop "
                "the same values of each in every epoch; leave one of the two out."
            )


TITLE = "tiny Shakespeare"
SETTINGS = ShakespeareSettings
SOURCE = Source(
    name="shakespeare",
    files={FILE: "6fb458f1232090904fb40fe944165e91"},
    mirrors=("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/",),
    zipped=False,
)


def load(settings: ShakespeareSettings, seed: int, shape: tuple[int, ...]) -> DatasetSplits:
    from dataclasses import replace

    from msaccel.data.download.fetch import locate
    from msaccel.data.download.install import md5_of
    from msaccel.data.text import load_text
    from msaccel.files import expand_user

    (block,) = shape
    path = expand_user(settings.root) if settings.root is not None else locate(SOURCE, None, settings.cache)
    file = path / FILE if path.is_dir() else path
    splits = load_text(file, settings, block, seed)
    md5 = md5_of(file) or ""
    return splits if md5 == SOURCE.files[FILE] else replace(splits, name=f"text-{md5[:8]}")
