"""Networks, by the names of `conf/model/`."""

from __future__ import annotations

import re

from mindspore import nn
from mindspore.common.initializer import Initializer, Normal

from msaccel import settings
from msaccel.models.lenet import LeNet5
from msaccel.models.mlp import Mlp


def build(model: settings.Model) -> nn.Cell:
    """The network that `model.name` names, initialised as `model.init` says."""
    networks = {"lenet": LeNet5, "mlp": Mlp}
    return networks[model.name](model.classes, initialiser(model.init))


def initialiser(init: str) -> Initializer | None:
    """`normal(σ)` as an initialiser with standard deviation σ; None for `default`."""
    found = re.fullmatch(r"normal\((.*)\)", init)
    return Normal(float(found[1])) if found else None
