"""Every key a user may set, with its type and range. The default values are in `conf/`.

Hydra merges the YAML of `conf/` into these dataclasses, so an unknown key or a wrong type fails before anything
starts. `setting(...)` beside a field gives the range that its type cannot express. The keys of a method are in
`msaccel.accel`, beside the method.
This package imports nothing heavy: the process that launches jobs never loads MindSpore.
"""

from msaccel.schema.config import CLASSES, OPERATIONAL, Config, logged, parameters
from msaccel.schema.data import DataSettings, DownloadedDataSettings, IdxDataSettings
from msaccel.schema.device import DeviceSettings
from msaccel.schema.fields import REQUIRED, Range, leaves, of_other_forms, setting
from msaccel.schema.model import NORMAL_INIT, LeNetSettings, MlpSettings, ModelSettings, ResNetSettings
from msaccel.schema.optimizer import (
    AdamSettings,
    LarsSettings,
    LionSettings,
    MomentumSettings,
    MuonSettings,
    OptimizerSettings,
    ScheduleFreeSettings,
    SgdSettings,
    ShampooSettings,
)
from msaccel.schema.schedule import ConstantSettings, DecaySettings, ScheduleSettings, StepSettings, TrapezoidSettings
from msaccel.schema.tracking import TrackingSettings
from msaccel.schema.train import CheckpointSettings, KernelsSettings, TrainSettings

__all__ = [
    "CLASSES",
    "NORMAL_INIT",
    "OPERATIONAL",
    "REQUIRED",
    "AdamSettings",
    "CheckpointSettings",
    "Config",
    "ConstantSettings",
    "DataSettings",
    "DecaySettings",
    "DeviceSettings",
    "DownloadedDataSettings",
    "IdxDataSettings",
    "KernelsSettings",
    "LarsSettings",
    "LeNetSettings",
    "LionSettings",
    "MlpSettings",
    "ModelSettings",
    "MomentumSettings",
    "MuonSettings",
    "OptimizerSettings",
    "Range",
    "ResNetSettings",
    "ScheduleFreeSettings",
    "ScheduleSettings",
    "SgdSettings",
    "ShampooSettings",
    "StepSettings",
    "TrackingSettings",
    "TrainSettings",
    "TrapezoidSettings",
    "leaves",
    "logged",
    "of_other_forms",
    "parameters",
    "setting",
]
