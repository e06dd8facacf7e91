"""msaccel's networks in PyTorch, layer by layer: the same shapes, norms, and order of pooling and ReLU.

relu(max(x)) = max(relu(x)), and the ReLU behind the pooling sees a quarter of the values: both sides do it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from msaccel import schema

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
WIDTHS = (64, 128, 256, 512)
SMALL = 64  # pixels: up to here `stem=auto` is the small one


def build(model: schema.ModelSettings) -> nn.Module:
    """The network that `model` names, with PyTorch's own initialisation."""
    if isinstance(model, schema.ResNetSettings):
        return resnet(model)
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
    assert model.norm == "batch" and model.version == "v1.5" and model.image_size
    small = model.stem == "small" or (model.stem == "auto" and model.image_size <= SMALL)
    channels, bottleneck = WIDTHS[0], model.depth >= 50
    layers = [conv(3, channels, 3) if small else conv(3, channels, 7, 2), norm(channels)]
    layers += [nn.ReLU(inplace=True)] if small else [nn.MaxPool2d(3, 2, 1), nn.ReLU(inplace=True)]
    for stage, (width, blocks) in enumerate(zip(WIDTHS, BLOCKS[model.depth], strict=True)):
        for position in range(blocks):
            layers.append(Block(channels, width, 2 if stage and not position else 1, bottleneck))
            channels = 4 * width if bottleneck else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, model.classes))
