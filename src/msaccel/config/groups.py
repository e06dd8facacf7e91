"""The groups of `conf/` from which a job chooses one option each, and the schema of every option."""

from msaccel.data.sets import data_sets
from msaccel.models import networks
from msaccel.schema import (
    AdamSettings,
    ConstantSettings,
    DecaySettings,
    DeviceSettings,
    LarsSettings,
    LionSettings,
    MomentumSettings,
    MuonSettings,
    ScheduleFreeSettings,
    SgdSettings,
    ShampooSettings,
    StepSettings,
    TrapezoidSettings,
)

GROUPS: dict[str, dict[str, type]] = {
    "model": {name: network.SETTINGS for name, network in networks().items()},
    "data": {name: data_set.SETTINGS for name, data_set in data_sets().items()},
    "device": dict.fromkeys(("cpu", "cpu4", "cpu2x2", "gpu", "ascend1", "ascend8", "ascend16"), DeviceSettings),
    "optimizer": {
        "momentum": MomentumSettings,
        "sgd": SgdSettings,
        "adam": AdamSettings,
        "adamw": AdamSettings,
        "lars": LarsSettings,
        "lamb": AdamSettings,
        "lion": LionSettings,
        "muon": MuonSettings,
        "shampoo": ShampooSettings,
        "schedulefree": ScheduleFreeSettings,
    },
    "schedule": {
        "constant": ConstantSettings,
        "step": StepSettings,
        "cosine": DecaySettings,
        "linear": DecaySettings,
        "trapezoid": TrapezoidSettings,
    },
}
