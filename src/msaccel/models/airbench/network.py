"""The network of airbench94 (Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", arXiv 2404.00498, section 3).

The first layer's filters are not trained: they whiten the 2 × 2 patches of the first 5,000 training images
(`initialise_from`), and each is there a second time with the opposite sign, so that the GELU keeps both halves. A
convolution begins as the identity on as many of its filters as it has input channels; the others are uniform, as in
`nn.Conv2d`. Batch norm has a shift and no scale, and its running statistics keep 0.6 of their value at every step. The
logits are the dense layer's outputs over 9.

Two things are cheaper here: GELU is its approximation with tanh, and the first layer has no bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.common.initializer import Initializer
from numpy.typing import NDArray

from msaccel.kernels import BatchNorm2d, Conv2d, Dense, Gelu, MaxPool2d
from msaccel.models.airbench.whitening import whitening_filters

PATCH = 2
FILTERS = 2 * 3 * PATCH**2
SCALE = 1 / 9


class Group(nn.Cell):
    """Convolution, maximum of 2 × 2, convolution: (N, in_channels, H, W), H and W odd, to (N, width, H // 2, W // 2).

    Pooling leaves out the last row and column of an odd size, so the first convolution does not compute them: it adds
    no zeros at the bottom and the right.

    Args:
        init: initialiser of the convolutions; None for the identity.
    """

    def __init__(self, in_channels: int, width: int, init: Initializer | None) -> None:
        super().__init__()
        options: dict[str, Any] = {"init": init, "blocked": True, "wide": True}  # pooling reads float32
        self.conv1 = Conv2d(in_channels, width, 3, padding=(1, 0, 1, 0), **options)
        self.pool = MaxPool2d(2, 2)
        self.norm1 = norm(width)
        self.conv2 = Conv2d(width, width, 3, padding=1, **options)
        self.norm2 = norm(width)
        self.gelu = Gelu()
        if init is None:
            start_as_identity(self.conv1.weight)
            start_as_identity(self.conv2.weight)

    def construct(self, x: Tensor) -> Tensor:
        y = self.gelu(self.norm1(self.pool(self.conv1(x))))
        return self.gelu(self.norm2(self.conv2(y)))


class Airbench(nn.Cell):
    """(N, 3, 32, 32) to logits (N, classes); the groups' maps are 15, 7 and 3 wide.

    Args:
        widths: channels of the three groups.
        classes: number of logits.
        init: initialiser of all trained layers; None for the identity, and MindSpore's default of `nn.Dense`.

    Attributes:
        initialised_from: the number of training images for `initialise_from`.
    """

    initialised_from = 5000

    def __init__(self, widths: Sequence[int], classes: int, init: Initializer | None = None) -> None:
        super().__init__()
        self.whiten = Conv2d(3, FILTERS, PATCH)
        self.whiten.weight.requires_grad = False
        self.gelu = Gelu()
        channels = [FILTERS, *widths]
        self.groups = nn.SequentialCell([Group(before, after, init) for before, after in pairwise(channels)])
        self.pool = MaxPool2d(3, 3)
        self.head = Dense(widths[-1], classes, has_bias=False, weight_init=init)

    def construct(self, x: Tensor) -> Tensor:
        y = self.pool(self.groups(self.gelu(self.whiten(x))))  # (N, C, 1, 1), or (N, C / 16, 1, 1, 16)
        return self.head(y.reshape(y.shape[0], -1)) * SCALE

    def initialise_from(self, images: NDArray[np.float32]) -> None:
        """Sets the first layer's filters from training images (n, 3, 32, 32)."""
        filters = whitening_filters(images, PATCH)
        self.whiten.weight.set_data(Tensor(np.concatenate((filters, -filters))))

    def undecayed(self) -> frozenset[str]:
        """Names of the parameters without weight decay: batch norm's shifts."""
        return frozenset(weight.name for weight in self.trainable_params() if weight.ndim == 1)

    def outer(self) -> frozenset[str]:
        """The dense layer's weight: the first layer is not trained."""
        return frozenset((self.head.weight.name,))


def norm(channels: int) -> BatchNorm2d:
    """Batch norm without a scale."""
    made = BatchNorm2d(channels, momentum=0.6)
    made.gamma.requires_grad = False
    return made


def start_as_identity(weight: Parameter) -> None:
    """Makes the first filters of a convolution's weight (O, I, 3, 3) pass one input channel each."""
    values = weight.asnumpy().copy()
    passing = np.arange(min(values.shape[:2]))
    values[passing] = 0
    values[passing, passing, 1, 1] = 1
    weight.set_data(Tensor(values))
