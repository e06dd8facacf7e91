"""Test-time augmentation: the logits of an image are means over views of it.

`flip`: the image and its mirror image. `shift`: half the weight on these two, the other half on the two pairs that are
moved by one pixel, down and right, or up and left; what enters is mirrored at the edge (K. Jordan, arXiv 2404.00498,
section 3.5).
"""

from __future__ import annotations

from mindspore import Tensor, nn, ops


def with_tta(network: nn.Cell, tta: str) -> nn.Cell:
    """The network as `train.tta` says that it is evaluated."""
    return network if tta == "none" else MeanOfViews(network, shifted=tta == "shift")


class MeanOfViews(nn.Cell):
    """The mean logits of a network over views of the images: (N, C, H, W) to (N, classes).

    Args:
        shifted: whether moved views count, too.
    """

    def __init__(self, network: nn.Cell, shifted: bool) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.shifted = network, shifted
        self.mirror = ops.ReverseV2(axis=[3])

    def construct(self, images: Tensor) -> Tensor:
        logits = self.both_ways(images)
        if not self.shifted:
            return logits
        return (logits + (self.both_ways(down_right(images)) + self.both_ways(up_left(images))) / 2) / 2

    def both_ways(self, images: Tensor) -> Tensor:
        return (self.network(images) + self.network(self.mirror(images))) / 2


def down_right(images: Tensor) -> Tensor:
    """The images moved by a pixel down and right; the second row and column come in once more."""
    lower = ops.concat((images[:, :, 1:2], images[:, :, :-1]), 2)
    return ops.concat((lower[:, :, :, 1:2], lower[:, :, :, :-1]), 3)


def up_left(images: Tensor) -> Tensor:
    """The images moved by a pixel up and left; the last row and column but one come in once more."""
    upper = ops.concat((images[:, :, 1:], images[:, :, -2:-1]), 2)
    return ops.concat((upper[:, :, :, 1:], upper[:, :, :, -2:-1]), 3)
