"""The geometry of a convolution. Does not import MindSpore."""

from __future__ import annotations

from dataclasses import dataclass

Sides = tuple[int, int]


@dataclass(frozen=True)
class Geometry:
    """Kernel size, stride, dilation, padding and groups. Pairs are along the height and the width.

    Attributes:
        kernel: size of the kernel.
        stride: step of the kernel.
        dilation: distance between neighbouring taps of the kernel.
        padding: zeros added at the top, the bottom, the left and the right. None, as `pad_mode="same"`: as many as it
            takes for ⌈H / stride⌉ rows and ⌈W / stride⌉ columns, an odd one at the bottom and the right.
        groups: number of channel groups convolved separately.
    """

    kernel: Sides
    stride: Sides
    dilation: Sides
    padding: tuple[int, int, int, int] | None
    groups: int

    @classmethod
    def square(
        cls, kernel_size: int, stride: int, padding: int | tuple[int, int, int, int], dilation: int, groups: int
    ) -> Geometry:
        """The same along the height and the width, but for the padding, if it is one number for each side."""
        sides = (padding,) * 4 if isinstance(padding, int) else padding
        return cls((kernel_size,) * 2, (stride,) * 2, (dilation,) * 2, sides, groups)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The nine numbers that the native operators read; -1 stands for `pad_mode="same"`."""
        return (*self.stride, *self.dilation, self.groups, *(self.padding or (-1,) * 4))

    def out_size(self, height: int, width: int) -> Sides:
        """Height and width of the output: (size + padding − dilation·(k − 1) − 1) // stride + 1.

        Raises:
            ValueError: the kernel does not fit into the padded input.
        """
        if self.padding is None:
            return -(-height // self.stride[0]), -(-width // self.stride[1])
        rows = self._positions(height + self.padding[0] + self.padding[1], 0)
        columns = self._positions(width + self.padding[2] + self.padding[3], 1)
        if min(rows, columns) < 1:
            reach = max(self.dilation[side] * (self.kernel[side] - 1) + 1 for side in (0, 1))
            raise ValueError(
                f"a kernel that reaches over {reach} pixels does not fit into an input of {height} × {width} padded "
                f"by {max(self.padding)}; give a larger input or padding, or a smaller kernel."
            )
        return rows, columns

    def _positions(self, padded: int, side: int) -> int:
        """Of the kernel along one side; none if it does not fit."""
        reach = self.dilation[side] * (self.kernel[side] - 1) + 1
        return max(0, (padded - reach) // self.stride[side] + 1)
