"""The training set with the images of an epoch's size."""

from __future__ import annotations

from dataclasses import dataclass

from msaccel.accel.resize import ResizeSettings
from msaccel.accel.resize.schedule import side
from msaccel.data.dataset import Dataset, ImageDataset


@dataclass(frozen=True)
class ResizedSamples:
    """What the epochs of a job train on.

    Attributes:
        samples: images at full size.
        epochs: of the whole job.
    """

    settings: ResizeSettings
    samples: Dataset
    epochs: int

    def of(self, epoch: int) -> Dataset:
        assert isinstance(self.samples, ImageDataset), "the networks that read any size read images"
        _, *full = self.samples.shape
        height, width = (side(self.settings, each, epoch, self.epochs) for each in full)
        return self.samples if [height, width] == full else self.samples.resized(height, width)

    def report(self, epoch: int) -> dict[str, float]:
        """The height of the images, in pixels."""
        return {"resize/pixels": self.of(epoch).shape[1]}
