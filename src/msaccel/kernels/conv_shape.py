"""How a kernel moves over a picture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Geometry:
    """The same both ways: the kernel is k × k, and every side is padded alike.

    Attributes:
        kernel_size: k.
        stride: step of the kernel.
        padding: zeros added on every side.
        dilation: distance between neighbouring taps of the kernel.
        groups: parts of the channels that are convolved for themselves.
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
