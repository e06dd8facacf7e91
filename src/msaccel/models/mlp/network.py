"""The dense network of MindSpore's tutorial 001."""

from __future__ import annotations

from collections import OrderedDict

from mindspore import Tensor, nn
from mindspore.common.initializer import Initializer

from msaccel.kernels import Dense


class Mlp(nn.Cell):
    """784-512-512-classes with ReLU for (N, 1, 28, 28); 669,706 parameters with 10 classes.

    Args:
        classes: number of logits.
        init: initialiser of all weights, with zero bias; None for MindSpore's current default of `nn.Dense`. At the
            tutorial's time that default was Normal(0.01) and zero bias.
    """

    def __init__(self, classes: int, init: Initializer | None = None) -> None:
        super().__init__()
        dense = {"weight_init": init, "bias_init": "zeros"} if init else {}
        self.dense_relu_sequential = nn.SequentialCell(
            OrderedDict(
                [
                    ("0", Dense(28 * 28, 512, relu=True, **dense)),
                    ("2", Dense(512, 512, relu=True, **dense)),
                    ("4", Dense(512, classes, **dense)),
                ]
            )  # numbered as in the tutorial, where the ReLUs are cells too
        )

    def construct(self, x: Tensor) -> Tensor:
        return self.dense_relu_sequential(x.reshape(x.shape[0], -1))  # nn.Flatten would copy
