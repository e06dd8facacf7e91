"""The network of airbench94 (arXiv 2404.00498): whitened patches, three groups of two convolutions, one dense layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.schema import ModelSettings, setting

if TYPE_CHECKING:
    from mindspore import nn

GROUPS = 3


@dataclass
class AirbenchSettings(ModelSettings):
    widths: list[int] = setting(at_least=1, at_most=4096, example="[64,256,256]")

    transforms = ("small",)

    def input_shape(self) -> tuple[int, int, int]:
        return 3, 32, 32

    def refusals(self) -> Iterator[str]:
        if len(self.widths) != GROUPS:
            yield (
                f"model.widths has {len(self.widths)} numbers for the {GROUPS} groups of model=airbench; "
                "write model.widths=[64,256,256]."
            )


TITLE = "airbench94"
SETTINGS = AirbenchSettings


def build(model: AirbenchSettings) -> nn.Cell:
    from msaccel.models.airbench.network import Airbench
    from msaccel.models.initialisers import initialiser

    assert model.classes is not None, "the data gives them"
    return Airbench(model.widths, model.classes, initialiser(model.init))
