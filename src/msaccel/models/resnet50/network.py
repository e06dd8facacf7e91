"""Residual networks (arXiv 1512.03385) with the constants of tutorials 003 and 004.

Both tutorials use the ResNet-50 of `docs/sample_code/dimension_reduce_training/resnet.py`, and initialise it with
`init_weight`: Xavier uniform for convolutions, a normal distribution with σ = 0.01 truncated at 2σ for the dense layer,
and zero for its bias. Batch norm has ε = 1e-4, and its running statistics keep 0.9 of their value at every step. One
thing differs here: zeros are padded on all four sides, as in PyTorch; the tutorials' `pad_mode="same"` with stride 2
pads right and below only. The outputs have the same sizes, and published weights fit.

The first block of a stage halves the height and width. In version v1.5, the tutorials', a bottleneck does so in its
3 × 3 convolution; in v1, the paper's, in its first 1 × 1, which skips three quarters of its input. Blocks of two
convolutions are the same in both versions.

Depths 18, 34, 50 and 101 are the paper's networks for ImageNet: four stages of 64 to 512 channels. Depths 20, 32, 44
and 56 are those of its section 4.2 for CIFAR-10: three stages of 16, 32 and 64 channels. Depth 8, with one block to a
stage, is of the same kind, for studies and tests that have little time. In the paper the shortcuts at the beginning of
a stage have no weights there ("option A"); here they are projections as in the other networks, with 2,752 weights more.
"""

from __future__ import annotations

from dataclasses import dataclass

import mindspore as ms
from mindspore import Tensor, nn
from mindspore.common.initializer import Initializer, TruncatedNormal, XavierUniform

from msaccel import schema
from msaccel.kernels import BatchNorm2d, Conv2d, Dense, Fork, MaxPool2d
from msaccel.models.resnet50 import BLOCKS, CIFAR_BLOCKS, CIFAR_WIDTHS, WIDTHS, stem_of

# MindSpore's initialiser takes the bounds as values now; at the tutorials' time it truncated at 2σ.
TRUNCATED_NORMAL = TruncatedNormal(0.01, a=-0.02, b=0.02)
GROUPS = 32  # of group norm (arXiv 1803.08494)


@dataclass(frozen=True)
class Layers:
    """Makes the layers that all blocks consist of.

    Attributes:
        norm: `batch` or `group`.
        init: initialiser of the convolutions.
    """

    norm: str
    init: Initializer

    def conv(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, wide: bool = False
    ) -> Conv2d:
        """A convolution without bias that keeps the size of its input, divided by the stride and rounded up."""
        blocked = self.norm == "batch"  # which takes blocks, as all else here
        options = {"padding": kernel_size // 2, "init": self.init, "blocked": blocked, "wide": wide}
        return Conv2d(in_channels, out_channels, kernel_size, stride, **options)

    def normalise(self, channels: int, relu: bool = False) -> nn.Cell:
        """A normalisation layer, with a ReLU after it if ``relu``."""
        if self.norm == "group":
            return GroupNorm(channels, relu)
        return BatchNorm2d(channels, eps=1e-4, momentum=0.9, relu=relu)

    def shortcut(self, in_channels: int, out_channels: int, stride: int) -> nn.Cell:
        """The path around a block's convolutions: the identity if the shapes agree, else a projection."""
        if stride == 1 and in_channels == out_channels:
            return nn.Identity()
        return nn.SequentialCell(self.conv(in_channels, out_channels, 1, stride), self.normalise(out_channels))


class GroupNorm(nn.GroupNorm):
    """Group normalisation that, like our batch normalisation, can add a tensor and apply a ReLU afterwards."""

    def __init__(self, channels: int, relu: bool) -> None:
        super().__init__(min(GROUPS, channels), channels)
        self.after = nn.ReLU() if relu else nn.Identity()

    def construct(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        y = super().construct(x)
        return self.after(y if added is None else y + added)


class Basic(nn.Cell):
    """Two 3 × 3 convolutions: (N, in_channels, H, W) to (N, width, H / stride, W / stride)."""

    expansion = 1

    def __init__(self, layers: Layers, in_channels: int, width: int, stride: int, version: str) -> None:
        super().__init__()
        self.fork = Fork()
        self.conv1 = layers.conv(in_channels, width, 3, stride)
        self.norm1 = layers.normalise(width, relu=True)
        self.conv2 = layers.conv(width, width, 3)
        self.norm2 = layers.normalise(width, relu=True)
        self.shortcut = layers.shortcut(in_channels, width, stride)

    def construct(self, x: Tensor) -> Tensor:
        x, around = self.fork(x)
        y = self.norm1(self.conv1(x))
        return self.norm2(self.conv2(y), self.shortcut(around))


class Bottleneck(nn.Cell):
    """1 × 1, 3 × 3 and 1 × 1 convolution: (N, in_channels, H, W) to (N, 4 · width, H / stride, W / stride)."""

    expansion = 4

    def __init__(self, layers: Layers, in_channels: int, width: int, stride: int, version: str) -> None:
        super().__init__()
        self.fork = Fork()
        strides = (stride, 1) if version == "v1" else (1, stride)
        out_channels = width * self.expansion
        self.conv1 = layers.conv(in_channels, width, 1, strides[0])
        self.norm1 = layers.normalise(width, relu=True)
        self.conv2 = layers.conv(width, width, 3, strides[1])
        self.norm2 = layers.normalise(width, relu=True)
        self.conv3 = layers.conv(width, out_channels, 1)
        self.norm3 = layers.normalise(out_channels, relu=True)
        self.shortcut = layers.shortcut(in_channels, out_channels, stride)

    def construct(self, x: Tensor) -> Tensor:
        x, around = self.fork(x)
        y = self.norm1(self.conv1(x))
        y = self.norm2(self.conv2(y))
        return self.norm3(self.conv3(y), self.shortcut(around))


class Stem(nn.Cell):
    """The first layers: (N, 3, H, W) to (N, width, H', W').

    `imagenet`: 7 × 7 with stride 2 and a 3 × 3 maximum with stride 2, H' = H / 4. `small`: one 3 × 3, H' = H.
    """

    def __init__(self, layers: Layers, kind: str, width: int) -> None:
        super().__init__()
        imagenet = kind == "imagenet"
        self.conv = layers.conv(3, width, 7, 2, wide=True) if imagenet else layers.conv(3, width, 3)
        self.norm = layers.normalise(width, relu=not imagenet)
        # ReLU after the maximum has a quarter of the values to compute.
        self.pool = MaxPool2d(3, 2, 1, relu=True) if imagenet else nn.Identity()

    def construct(self, x: Tensor) -> Tensor:
        return self.pool(self.norm(self.conv(x)))


class ResNet(nn.Cell):
    """Stem, three or four stages, mean over height and width, dense layer: (N, 3, H, W) to logits (N, classes).

    Args:
        model: depth, norm, version, stem, image_size and classes.
        init: initialiser of all convolutions and of the dense layer; None for the tutorials' `init_weight`.
    """

    def __init__(self, model: schema.ResNetSettings, init: Initializer | None = None) -> None:
        super().__init__()
        layers = Layers(model.norm, init or XavierUniform())
        block: type[Basic] | type[Bottleneck] = Bottleneck if model.has_bottlenecks else Basic
        widths = WIDTHS if model.depth in BLOCKS else CIFAR_WIDTHS
        self.stem = Stem(layers, stem_of(model), widths[0])
        stages, channels = [], widths[0]
        for stage, (width, blocks) in enumerate(zip(widths, (BLOCKS | CIFAR_BLOCKS)[model.depth], strict=True)):
            made = []
            for position in range(blocks):
                stride = 2 if stage and not position else 1
                made.append(block(layers, channels, width, stride, model.version))
                channels = width * block.expansion
            stages.append(nn.SequentialCell(made))
        self.stages = nn.SequentialCell(stages)
        assert model.classes is not None, "the data gives them"
        self.head = Dense(channels, model.classes, weight_init=init or TRUNCATED_NORMAL, bias_init="zeros")

    def construct(self, x: Tensor) -> Tensor:
        y = self.stages(self.stem(x))
        if y.dtype == ms.bfloat16:
            y = y.astype(ms.float32)  # for MindSpore's mean
        y = y.mean((2, 3))  # (N, C), or (N, C / 16, 16)
        return self.head(y.reshape(y.shape[0], -1))

    def undecayed(self) -> frozenset[str]:
        """Names of the parameters without weight decay: scales, shifts and biases, as in the tutorials."""
        return frozenset(weight.name for weight in self.trainable_params() if weight.ndim < 2)
