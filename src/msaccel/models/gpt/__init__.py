"""The character-level GPT of nanoGPT: a decoder-only transformer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.schema import ModelSettings, setting

if TYPE_CHECKING:
    from mindspore import nn

MAX_BLOCK = 8192  # characters


@dataclass
class GptSettings(ModelSettings):
    """The network's sizes; `classes` is the number of characters in the vocabulary."""

    layers: int = setting(at_least=1, at_most=96, example="4")
    heads: int = setting(at_least=1, at_most=256, example="4")
    width: int = setting(at_least=1, at_most=16384, example="128")
    block: int = setting(at_least=2, at_most=MAX_BLOCK, example="64")
    tied: bool = setting()
    dropout: float = setting(at_least=0, below=1, example="0.2")

    transforms = ("characters",)
    has_convolutions = False

    def input_shape(self) -> tuple[int, ...]:
        return (self.block,)

    def refusals(self) -> Iterator[str]:
        if self.width % self.heads:
            yield (
                f"model.width={self.width} cannot be divided among model.heads={self.heads}; "
                f"write model.width={self.heads * max(1, self.width // self.heads)} or another model.heads."
            )


TITLE = "GPT"
SETTINGS = GptSettings


def build(model: GptSettings) -> nn.Cell:
    from msaccel.models.gpt.network import Gpt

    return Gpt(model)
