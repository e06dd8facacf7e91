"""LeNet5 as MindSpore's tutorial 000 writes it."""

from __future__ import annotations

from mindspore import Tensor, nn
from mindspore.common.initializer import Initializer, Normal

from msaccel.kernels import Conv2d, Dense, MaxPool2d


class LeNet5(nn.Cell):
    """Two convolutions and three dense layers for (N, 1, 32, 32); 61,684 parameters with 10 classes.

    Args:
        classes: number of logits.
        init: initialiser of the convolutions, with zero bias in the dense layers; None for MindSpore's current defaults
            of `nn.Conv2d` and of the bias of `nn.Dense`. The weights of the dense layers are Normal(0.02) in both
            cases, as in the tutorial. MindSpore's default for convolutions was Normal(0.01) at its time.
    """

    def __init__(self, classes: int, init: Initializer | None = None) -> None:
        super().__init__()
        self.conv1 = Conv2d(1, 6, 5, init=init)
        self.conv2 = Conv2d(6, 16, 5, init=init)
        bias = "zeros" if init else None
        self.fc1 = Dense(16 * 5 * 5, 120, relu=True, weight_init=Normal(0.02), bias_init=bias)
        self.fc2 = Dense(120, 84, relu=True, weight_init=Normal(0.02), bias_init=bias)
        self.fc3 = Dense(84, classes, weight_init=Normal(0.02), bias_init=bias)
        self.max_pool2d = MaxPool2d(kernel_size=2, stride=2, relu=True)
        self.flatten = nn.Flatten()

    def construct(self, x: Tensor) -> Tensor:
        x = self.max_pool2d(self.conv1(x))
        x = self.max_pool2d(self.conv2(x))
        return self.fc3(self.fc2(self.fc1(self.flatten(x))))
