"""The dense network of MindSpore's tutorial 001."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msaccel.schema import MlpSettings

if TYPE_CHECKING:
    from mindspore import nn

TITLE = "MLP"
SETTINGS = MlpSettings


def build(model: MlpSettings) -> nn.Cell:
    from msaccel.models.initialisers import initialiser
    from msaccel.models.mlp.network import Mlp

    assert model.classes is not None, "the data gives them"
    return Mlp(model.classes, initialiser(model.init))
