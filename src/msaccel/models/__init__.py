"""The networks, by their names in `conf/model/`."""

from __future__ import annotations

import re

from mindspore import nn
from mindspore.common.initializer import Initializer, Normal

from msaccel import schema
from msaccel.models import resnet
from msaccel.models.lenet import LeNet5
from msaccel.models.mlp import Mlp
from msaccel.models.resnet import ResNet


def build(model: schema.ModelSettings) -> nn.Cell:
    """Builds the network `model.name`, with its weights initialised as `model.init` says."""
    assert model.classes is not None, "the data gives them"
    init = initialiser(model.init)
    if isinstance(model, schema.ResNetSettings):
        return ResNet(model, init)
    networks = {"lenet": LeNet5, "mlp": Mlp}
    return networks[model.name](model.classes, init)


def initialiser(init: str) -> Initializer | None:
    """For `normal(σ)` a normal distribution with mean 0 and standard deviation σ; None for `default`.

    With None each network takes its own default, which its class describes.
    """
    found = re.fullmatch(r"normal\((.*)\)", init)
    return Normal(float(found[1])) if found else None


def undecayed(network: nn.Cell) -> frozenset[str]:
    """Names of the parameters without weight decay; empty for a network whose tutorial decays all of them."""
    return resnet.undecayed(network) if isinstance(network, ResNet) else frozenset()
