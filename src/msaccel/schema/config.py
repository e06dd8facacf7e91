"""The configuration of one job, made of the other files' groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msaccel.schema.data import DataSettings
from msaccel.schema.device import DeviceSettings
from msaccel.schema.fields import leaves, setting
from msaccel.schema.model import ModelSettings
from msaccel.schema.optimizer import OptimizerSettings
from msaccel.schema.schedule import ScheduleSettings
from msaccel.schema.tracking import SweepSettings, TrackingSettings
from msaccel.schema.train import CheckpointSettings, KernelsSettings, LossScaleSettings, TrainSettings

# Beginnings of the keys that say how a job is started, stored and watched. None of them changes what it computes.
OPERATIONAL = (
    *("tracking.", "checkpoint.", "sweep.", "resume", "data.cache", "data.workers"),
    *("device.server_rank", "device.master", "device.rank_table", "device.timeout_s"),
)
CLASSES = "model.classes"


@dataclass
class Config:
    """One job. `accel` has one entry for each method in use, by the method's name.

    Where `model.classes` is null it becomes the number of the data's classes; for an image folder or a text when that
    is read.
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
    return {key: logged(value) for key, value, _ in leaves(config)}


def logged(value: Any) -> str:
    """A setting as MLflow's parameters have it."""
    return "null" if value is None else str(value)
