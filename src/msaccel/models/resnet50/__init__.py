"""Residual networks; `model.depth` chooses among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msaccel.schema import ResNetSettings

if TYPE_CHECKING:
    from mindspore import nn

TITLE = "ResNet-{depth}"
SETTINGS = ResNetSettings
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
WIDTHS = (64, 128, 256, 512)
CIFAR_BLOCKS = {6 * n + 2: (n, n, n) for n in (1, 3, 5, 7, 9)}
CIFAR_WIDTHS = (16, 32, 64)
_SMALL = 64  # pixels: images up to this size would become too small in the stem that divides height and width by four


def build(model: ResNetSettings) -> nn.Cell:
    from msaccel.models.initialisers import initialiser
    from msaccel.models.resnet50.network import ResNet

    return ResNet(model, initialiser(model.init))


def stem_of(model: ResNetSettings) -> str:
    """`imagenet` or `small`; chosen by the size of the images if `model.stem` is `auto`."""
    if model.stem != "auto":
        return model.stem
    return "small" if model.image_size is not None and model.image_size <= _SMALL else "imagenet"
