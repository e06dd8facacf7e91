"""LeNet5 of MindSpore's tutorial 000."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msaccel.schema import LeNetSettings

if TYPE_CHECKING:
    from mindspore import nn

TITLE = "LeNet"
SETTINGS = LeNetSettings


def build(model: LeNetSettings) -> nn.Cell:
    from msaccel.models.initialisers import initialiser
    from msaccel.models.lenet.network import LeNet5

    assert model.classes is not None, "the data gives them"
    return LeNet5(model.classes, initialiser(model.init))
