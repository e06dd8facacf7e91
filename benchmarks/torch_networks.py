"""msaccel's networks in PyTorch, layer by layer: the same shapes, norms, and order of pooling and ReLU.

The transformer is nanoGPT's, with PyTorch's own fused attention and the approximation of GELU that msaccel uses.

relu(max(x)) = max(relu(x)), and the ReLU behind the pooling sees a quarter of the values: both sides do it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from msaccel import schema
from msaccel.models.airbench import AirbenchSettings
from msaccel.models.gpt import GptSettings
from msaccel.models.resnet50 import BLOCKS, WIDTHS, stem_of


def build(model: schema.ModelSettings) -> nn.Module:
    """The network that `model` names, with PyTorch's own initialisation."""
    if isinstance(model, schema.ResNetSettings):
        return resnet(model)
    if isinstance(model, GptSettings):
        return Gpt(model)
    assert model.classes
    if isinstance(model, AirbenchSettings):
        return airbench(model.widths, model.classes)
    return {"lenet": lenet, "mlp": mlp}[model.name](model.classes)


def lenet(classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, bias=False), nn.MaxPool2d(2), nn.ReLU(inplace=True),
        nn.Conv2d(6, 16, 5, bias=False), nn.MaxPool2d(2), nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120), nn.ReLU(inplace=True),
        nn.Linear(120, 84), nn.ReLU(inplace=True),
        nn.Linear(84, classes),
    )  # fmt: skip


def mlp(classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(28 * 28, 512), nn.ReLU(inplace=True),
        nn.Linear(512, 512), nn.ReLU(inplace=True),
        nn.Linear(512, classes),
    )  # fmt: skip


def conv(in_channels: int, out_channels: int, kernel_size: int, stride: int = 1) -> nn.Module:
    return nn.Conv2d(in_channels, out_channels, kernel_size, stride, kernel_size // 2, bias=False)


def norm(channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels, eps=1e-4, momentum=0.1)  # MindSpore counts the share that is kept, 0.9


class Block(nn.Module):
    """A residual block of v1.5: two 3 × 3 convolutions, or a bottleneck of three with the stride in its 3 × 3."""

    def __init__(self, in_channels: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        out_channels = 4 * width if bottleneck else width
        if bottleneck:
            layers = [conv(in_channels, width, 1), norm(width), nn.ReLU(inplace=True)]
            layers += [conv(width, width, 3, stride), norm(width), nn.ReLU(inplace=True), conv(width, out_channels, 1)]
        else:
            layers = [conv(in_channels, width, 3, stride), norm(width), nn.ReLU(inplace=True), conv(width, width, 3)]
        self.layers = nn.Sequential(*layers, norm(out_channels))
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(conv(in_channels, out_channels, 1, stride), norm(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.layers(x).add_(self.shortcut(x)))


def resnet(model: schema.ResNetSettings) -> nn.Module:
    """ResNet v1.5 with batch norm; the stem as `model.stem` says."""
    assert model.norm == "batch" and model.version == "v1.5"
    small = stem_of(model) == "small"
    channels, bottleneck = WIDTHS[0], model.depth >= 50
    layers = [conv(3, channels, 3) if small else conv(3, channels, 7, 2), norm(channels)]
    layers += [nn.ReLU(inplace=True)] if small else [nn.MaxPool2d(3, 2, 1), nn.ReLU(inplace=True)]
    for stage, (width, blocks) in enumerate(zip(WIDTHS, BLOCKS[model.depth], strict=True)):
        for position in range(blocks):
            layers.append(Block(channels, width, 2 if stage and not position else 1, bottleneck))
            channels = 4 * width if bottleneck else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, model.classes))


def airbench(widths: Sequence[int], classes: int) -> nn.Module:
    """airbench94; the first layer is not trained."""

    def normed(channels: int) -> list[nn.Module]:
        made = nn.BatchNorm2d(channels, momentum=0.4)
        made.weight.requires_grad = False
        return [made, nn.GELU("tanh")]

    channels = 24
    whiten = nn.Conv2d(3, channels, 2, bias=False).requires_grad_(False)
    layers = [whiten, nn.GELU("tanh")]
    for width in widths:
        layers += [conv(channels, width, 3), nn.MaxPool2d(2), *normed(width), conv(width, width, 3), *normed(width)]
        channels = width
    return nn.Sequential(*layers, nn.MaxPool2d(3), nn.Flatten(), nn.Linear(channels, classes, bias=False), Ninth())


class Ninth(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 9


class TransformerBlock(nn.Module):
    """Causal attention, then two dense layers, each behind a layer norm and added to its input (N, T, C)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, bias=False) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.wide, self.narrow = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        n, block, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, block, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, block, width))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Characters (N, T) to logits (N, T, vocabulary); embedding and output share a matrix."""

    def __init__(self, model: GptSettings) -> None:
        super().__init__()
        assert model.classes is not None and model.tied and not model.dropout
        self.embedding = nn.Embedding(model.classes, model.width)
        self.positions = nn.Parameter(torch.empty(model.block, model.width))
        self.blocks = nn.Sequential(*(TransformerBlock(model.width, model.heads) for _ in range(model.layers)))
        self.norm = nn.LayerNorm(model.width, bias=False)
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.02) if weight.ndim > 1 else nn.init.ones_(weight)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.blocks(self.embedding(x) + self.positions))
        return functional.linear(y, self.embedding.weight)
