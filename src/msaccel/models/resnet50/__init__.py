"""Residual networks; `model.depth` chooses among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msaccel.schema import ResNetSettings

if TYPE_CHECKING:
    from mindspore import nn

TITLE = "ResNet-{depth}"
SETTINGS = ResNetSettings


def build(model: ResNetSettings) -> nn.Cell:
    from msaccel.models.initialisers import initialiser
    from msaccel.models.resnet50.network import ResNet

    return ResNet(model, initialiser(model.init))
