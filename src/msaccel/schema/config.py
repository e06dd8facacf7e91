"""The configuration of one job: its groups, and the keys that are in none of the other files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msaccel.schema.data import DataSettings
from msaccel.schema.device import DeviceSettings
from msaccel.schema.fields import Range, leaves, setting
from msaccel.schema.model import ModelSettings
from msaccel.schema.optimizer import OptimizerSettings
from msaccel.schema.schedule import ScheduleSettings

_PART = r"(?!\.{1,2}(/|$))[^/]+"  # a component of a path, not . or .., which would leave the folder


@dataclass
class TrainSettings:
    epochs: int | None = setting(at_least=1, example="3, or null with train.max_updates")
    max_updates: int | None = setting(at_least=1, example="null, or 1000")
    batch_size: int = setting(at_least=1, example="32")
    eval_every: int = setting(at_least=1, example="1")
    target_accuracy: float | None = setting(above=0, at_most=1, example="0.98")
    stop_at_target: bool = setting()
    on_nonfinite: str = setting(choices=("stop", "skip"))
    label_smoothing: float = setting(at_least=0, below=1, example="0.1")


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

    # A default, so that configurations saved before this key existed can be read.
    use: str = setting(default="auto", choices=("auto", "onednn", "unfold", "mindspore"))


@dataclass
class CheckpointSettings:
    """The checkpoints from which a job is resumed; see `msaccel.checkpoint`."""

    # Defaults, so that configurations saved before these keys existed can be read.
    every_updates: int | None = setting(default=None, at_least=1, example="null, or 100")
    every_minutes: float | None = setting(default=10.0, above=0, example="null, or 10")
    keep: int = setting(default=2, at_least=1, example="2")


@dataclass
class SweepSettings:
    """Settings for each job of a sweep; `retries` and `job_timeout_s` also apply to a single job."""

    # Defaults, so that configurations saved before these keys existed can be read.
    resume: bool = setting(default=False)
    retries: int = setting(default=0, at_least=0, at_most=100, example="2")
    job_timeout_s: float | None = setting(default=None, above=0, example="null, or 3600")


@dataclass
class TrackingSettings:
    uri: str = setting()
    artifacts: str = setting()
    # Also the name of a folder inside `artifacts`.
    experiment: str = setting(pattern=rf"(?=.{{1,80}}$){_PART}(/{_PART})*", example="lenet-mnist")
    every: Any = setting(at_least=1, choices=("auto",), example="auto or 100")
    # Defaults, so that configurations saved before these keys existed can be read.
    patience_minutes: float = setting(default=60.0, above=0, example="60")
    name: str | None = setting(default=None, pattern=r".{1,250}", example="null, or a name of up to 250 characters")
    tags: dict[str, str] = field(default_factory=dict, metadata={"range": Range(prose=True)})
    note: str | None = setting(default=None, prose=True)
    system_metrics: bool = setting(default=False)


@dataclass
class Config:
    """One job. `accel` has one entry for each method in use, by the method's name.

    Where `model.classes` is null it becomes the number of the data's classes; for an image folder when that is read.
    """

    seed: int = setting(at_least=0, at_most=2**31 - 1, example="0")
    model: ModelSettings = setting()
    data: DataSettings = setting()
    accel: dict[str, Any] = field(default_factory=dict)
    device: DeviceSettings = setting()
    optimizer: OptimizerSettings = setting()
    schedule: ScheduleSettings = setting()
    train: TrainSettings = setting()
    precision: str = setting(choices=("fp32", "fp16", "bf16"))
    loss_scale: LossScaleSettings = setting()
    kernels: KernelsSettings = field(default_factory=KernelsSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    resume: str | None = setting(default=None, pattern="latest|[0-9a-f]{32}", example="latest or the id of a run")
    sweep: SweepSettings = field(default_factory=SweepSettings)
    tracking: TrackingSettings = setting()

    def __post_init__(self) -> None:
        self.model.complete(self.data)


def parameters(config: Config) -> dict[str, str]:
    """The resolved configuration as text, with dotted keys: the parameters of a run."""
    return {key: "null" if value is None else str(value) for key, value, _ in leaves(config)}
