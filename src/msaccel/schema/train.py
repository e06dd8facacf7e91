"""The keys of training: its length, the loss scale, operators, and checkpoints to resume from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msaccel.schema.fields import setting


@dataclass
class TrainSettings:
    epochs: int | None = setting(at_least=1, example="3, or null with train.max_updates")
    max_updates: int | None = setting(at_least=1, example="null, or 1000")
    batch_size: int = setting(at_least=1, example="32")
    # A float would be logged as 1.0 where runs of before logged 1, and OmegaConf cannot merge unions.
    eval_every: Any = setting(number=True, at_least=0.001, example="1, or 0.1")
    target_accuracy: float | None = setting(above=0, at_most=1, example="0.98")
    stop_at_target: bool = setting()
    on_nonfinite: str = setting(choices=("stop", "skip"))
    label_smoothing: float = setting(at_least=0, below=1, example="0.1")
    # A default, so that configurations saved before this key existed can be read.
    tta: str = setting(default="none", choices=("none", "flip", "shift"))


@dataclass
class LossScaleSettings:
    """The loss scale, which keeps float16 gradients from vanishing."""

    mode: str = setting(choices=("none", "static", "dynamic"))
    init: float = setting(at_least=1, at_most=2.0**64, example="1024")
    growth_interval: int = setting(at_least=1, at_most=2**31 - 1, example="2000")
    max_consecutive: int = setting(at_least=1, at_most=2**31 - 2, example="10")


@dataclass
class KernelsSettings:
    """The backend of convolutions, and with `onednn` of pooling and batch norm too; see `msaccel.kernels`."""

    # Defaults, so that configurations saved before these keys existed can be read.
    use: str = setting(default="auto", choices=("auto", "onednn", "unfold", "mindspore"))
    emulate_bf16: bool = setting(default=False)


@dataclass
class CheckpointSettings:
    """The checkpoints from which a job is resumed; see `msaccel.checkpoint`."""

    # Defaults, so that configurations saved before these keys existed can be read.
    every_updates: int | None = setting(default=None, at_least=1, example="null, or 100")
    every_minutes: float | None = setting(default=10.0, above=0, example="null, or 10")
    keep: int = setting(default=2, at_least=1, example="2")
