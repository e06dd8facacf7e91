"""The characters of tiny Shakespeare, or of a text of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msaccel.data.download.sources import Source
from msaccel.schema import DownloadedDataSettings

if TYPE_CHECKING:
    from msaccel.data.dataset import DatasetSplits

FILE = "input.txt"


class ShakespeareSettings(DownloadedDataSettings):
    transforms = ("characters",)


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
    path = expand_user(settings.root) if settings.root else locate(SOURCE, None, settings.cache)
    file = path / FILE if path.is_dir() else path
    splits = load_text(file, settings, block, seed)
    is_shakespeare = md5_of(file) == SOURCE.files[FILE]
    return splits if is_shakespeare else replace(splits, name=f"text-{splits.digest[:8]}")
