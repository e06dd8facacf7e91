"""Floating-point operations of a forward pass over one sample: convolutions and dense layers, 2 per multiply-add.

A training step counts as three forward passes: the forward pass, the gradient of the inputs and that of the weights.
Normalisation, activations and pooling, a few operations per value, are left out, as is usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msaccel import schema
from msaccel.models.airbench import AirbenchSettings
from msaccel.models.gpt import GptSettings
from msaccel.models.resnet50 import BLOCKS, WIDTHS, stem_of

TRAINING = 3  # forward passes that a training step counts as


def forward(model: schema.ModelSettings) -> int:
    """Operations of the network that `model` describes."""
    if isinstance(model, schema.ResNetSettings):
        return resnet(model)
    if isinstance(model, GptSettings):
        return gpt(model)
    assert model.classes
    if isinstance(model, AirbenchSettings):
        return airbench(model.widths, model.classes)
    return {"lenet": lenet, "mlp": mlp}[model.name](model.classes)


def lenet(classes: int) -> int:
    return convolution(28, 5, 1, 6) + convolution(10, 5, 6, 16) + dense(16 * 5 * 5, 120, 84, classes)


def mlp(classes: int) -> int:
    return dense(28 * 28, 512, 512, classes)


def resnet(model: schema.ResNetSettings) -> int:
    assert model.image_size is not None
    expansion = 4 if model.has_bottlenecks else 1
    side, channels = model.image_size, WIDTHS[0]
    if stem_of(model) == "imagenet":
        side = halved(side)
        total = convolution(side, 7, 3, channels)
        side = halved(side)
    else:
        total = convolution(side, 3, 3, channels)
    for stage, (width, blocks) in enumerate(zip(WIDTHS, BLOCKS[model.depth], strict=True)):
        for position in range(blocks):
            before, out_channels = side, width * expansion
            if stage and not position:
                side = halved(side)
            if model.has_bottlenecks:
                total += convolution(side if model.version == "v1" else before, 1, channels, width)
                total += convolution(side, 3, width, width) + convolution(side, 1, width, out_channels)
            else:
                total += convolution(side, 3, channels, width) + convolution(side, 3, width, width)
            if side != before or channels != out_channels:
                total += convolution(side, 1, channels, out_channels)
            channels = out_channels
    assert model.classes
    return total + dense(channels, model.classes)


def airbench(widths: Sequence[int], classes: int) -> int:
    side, channels = 31, 24
    total = convolution(side, 2, 3, channels)
    for width in widths:
        total += convolution(side, 3, channels, width) + convolution(side // 2, 3, width, width)
        side, channels = side // 2, width
    return total + dense(channels, classes)


def gpt(model: GptSettings) -> int:
    """Of a block of characters; attention is counted in full, though half of its scores are masked."""
    assert model.classes is not None
    width, block = model.width, model.block
    attention = 2 * 2 * block * width  # scores and weighted sums of a character
    layer = dense(width, 3 * width) + attention + dense(width, width) + dense(width, 4 * width, width)
    return block * (model.layers * layer + dense(width, model.classes))


def convolution(out_side: int, kernel_size: int, in_channels: int, out_channels: int) -> int:
    return 2 * out_side**2 * kernel_size**2 * in_channels * out_channels


def dense(*widths: int) -> int:
    """A chain of dense layers, from the first width to the last."""
    return sum(2 * before * after for before, after in pairwise(widths))


def halved(side: int) -> int:
    return -(-side // 2)
