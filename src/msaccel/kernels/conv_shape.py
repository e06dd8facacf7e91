"""The geometry of a convolution. Does not import MindSpore."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Geometry:
    """Kernel size, stride, padding, dilation and groups; the same for height and width.

    Attributes:
        kernel_size: k, the kernel is k × k.
        stride: step of the kernel.
        padding: zeros added on every side.
        dilation: distance between neighbouring taps of the kernel.
        groups: number of channel groups convolved separately.
    """

    kernel_size: int
    stride: int
    padding: int
    dilation: int
    groups: int

    def out_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the output: (H + 2·padding − dilation·(k − 1) − 1) // stride + 1.

        Raises:
            ValueError: the kernel does not fit into the padded input.
        """
        reach = self.dilation * (self.kernel_size - 1) + 1
        if min(height, width) + 2 * self.padding < reach:
            raise ValueError(
                f"a kernel that reaches over {reach} pixels does not fit into an input of {height} × {width} padded "
                f"by {self.padding}; give a larger input or padding, or a smaller kernel."
            )
        return tuple((side + 2 * self.padding - reach) // self.stride + 1 for side in (height, width))  # type: ignore[return-value]
