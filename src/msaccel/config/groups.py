"""The groups of `conf/` of which a job has one option each, and the schema of every option."""

from msaccel.models import networks
from msaccel.schema import (
    AdamSettings,
    Cifar10Settings,
    ConstantSettings,
    DecaySettings,
    DeviceSettings,
    IdxDataSettings,
    ImageFolderSettings,
    MomentumSettings,
    SgdSettings,
    StepSettings,
    SyntheticSettings,
)

GROUPS: dict[str, dict[str, type]] = {
    "model": {name: network.SETTINGS for name, network in networks().items()},
    "data": {
        "mnist": IdxDataSettings,
        "fashion_mnist": IdxDataSettings,
        "cifar10": Cifar10Settings,
        "imagenet": ImageFolderSettings,
        "synthetic": SyntheticSettings,
    },
    "device": dict.fromkeys(("cpu", "cpu4", "cpu2x2", "gpu", "ascend1", "ascend8", "ascend16"), DeviceSettings),
    "optimizer": {"momentum": MomentumSettings, "sgd": SgdSettings, "adam": AdamSettings, "adamw": AdamSettings},
    "schedule": {"constant": ConstantSettings, "step": StepSettings, "cosine": DecaySettings, "linear": DecaySettings},
}
