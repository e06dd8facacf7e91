"""Progressive resizing: early epochs train on smaller images, which grow to their full size.

With p the share of the job's epochs that are over when an epoch begins, s = `initial_scale`, d = `delay_fraction` and
f = `finetune_fraction`, the height and width of its images are multiplied by

    1 for p ≥ 1 − f and in the last epoch,      s for p ≤ d,      s + (1 − s) (p − d) / (1 − f − d) in between

and rounded to a multiple of `size_increment`.

Place: the samples of an epoch, before any update. Images in memory are averaged over areas after augmentation,
photographs are resized to the smaller size at once. Evaluation is at full size in every epoch.

What not to expect: the accuracy of full size after as many epochs. Running statistics of batch norm belong to the size
that is trained on, so evaluations before the last sizes come out low.
Sources: fast.ai's entry to DAWNBench (2018); the keys are those of Composer's ProgressiveResizing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.accel import Method
from msaccel.errors import ConfigError
from msaccel.schema import Config, setting

if TYPE_CHECKING:
    from msaccel.accel.resize.samples import ResizedSamples
    from msaccel.data.dataset import Dataset


@dataclass
class ResizeSettings:
    initial_scale: float = setting(above=0, below=1, example="0.5")
    delay_fraction: float = setting(at_least=0, below=1, example="0.5")
    finetune_fraction: float = setting(at_least=0, below=1, example="0.2")
    size_increment: int = setting(at_least=1, example="4")


class Resize(Method):
    slot = "data"
    settings = ResizeSettings
    baseline = "at full size"

    def refusals(self, settings: ResizeSettings, config: Config) -> Iterator[str]:
        model, delay, finetune = config.model, settings.delay_fraction, settings.finetune_fraction
        if not model.any_size:
            shape = " × ".join(map(str, model.input_shape()))
            yield (
                f"accel=resize trains on images of several sizes, and model={model.name} reads only "
                f"samples of shape {shape}; write model=resnet50 or leave out resize."
            )
        elif round(delay + finetune, 9) > 1:
            yield (
                f"accel.resize.delay_fraction={delay:g} and accel.resize.finetune_fraction={finetune:g} are more than "
                f"the whole job together; write accel.resize.finetune_fraction={1 - delay:g} or less."
            )
        elif config.train.epochs and config.train.max_updates is None:
            yield from no_smaller(settings, model.input_shape(), config.train.epochs)

    def fixed_budget(self, settings: ResizeSettings) -> str:
        return "may have given other sizes to images in epochs that are over"

    def epoch_samples(self, settings: ResizeSettings, samples: Dataset, epochs: int) -> ResizedSamples:
        from msaccel.accel.resize.samples import ResizedSamples

        for refusal in no_smaller(settings, samples.shape, epochs):  # that only the number of samples tells
            raise ConfigError(refusal)
        return ResizedSamples(settings, samples, epochs)


def no_smaller(settings: ResizeSettings, shape: Sequence[int], epochs: int) -> Iterator[str]:
    """A sentence if no epoch has smaller images: sizes never fall, so the first one would have them."""
    from msaccel.accel.resize.schedule import side

    if epochs == 1:
        yield (
            "accel=resize trains on smaller images before the last epoch, and this job has one epoch; "
            "write train.epochs=5 train.max_updates=null, or leave out resize."
        )
    elif all(side(settings, full, 0, epochs) == full for full in shape[1:]):
        yield (
            f"accel.resize.initial_scale={settings.initial_scale:g} with accel.resize.size_increment="
            f"{settings.size_increment} makes images of {' × '.join(map(str, shape[1:]))} no smaller; "
            "write accel.resize.initial_scale=0.5 accel.resize.size_increment=1."
        )


METHOD = Resize()
