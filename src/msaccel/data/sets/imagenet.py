"""Photographs in one folder per class: ImageNet 2012, or the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.schema import DataSettings, ModelSettings, setting

if TYPE_CHECKING:
    from msaccel.data.dataset import DatasetSplits


@dataclass
class ImageFolderSettings(DataSettings):
    transforms = ("imagenet",)
    root: str | None = setting()
    format: str = setting(choices=("folder", "mindrecord"))
    cache: str = setting()
    augment: bool = setting()
    workers: int = setting(at_least=1, at_most=256, example="2")
    on_broken: str = setting(choices=("stop", "skip"))

    def refusals(self, model: ModelSettings) -> Iterator[str]:
        if self.root is None:
            yield "data=imagenet is not downloaded; write data.root=FOLDER with a folder that holds train and val."
        if self.format == "mindrecord" and self.on_broken == "skip":
            yield (
                "data.on_broken=skip has no effect with data.format=mindrecord, whose images were checked before; "
                "leave it out."
            )


TITLE = "photographs"
SETTINGS = ImageFolderSettings


def load(settings: ImageFolderSettings, seed: int, shape: tuple[int, ...]) -> DatasetSplits:
    from msaccel.data.image_folder.load import load_image_folder

    return load_image_folder(settings, seed, size=shape[-1])
