"""The order in which the numbers of a network's parameters make one flat vector."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Layout:
    """Names and shapes of parameters; the flat vector is their concatenation, each in row-major order.

    Attributes:
        names: in the order of the trainable parameters; they differ.
        shapes: of each parameter, none of them empty.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.shapes) or len(set(self.names)) != len(self.names):
            raise ValueError(f"{len(self.shapes)} shapes need as many different names, not {self.names}")
        if not self.names or min(self.sizes) < 1:
            raise ValueError(f"parameters must hold numbers, but the shapes are {self.shapes}")

    @property
    def sizes(self) -> list[int]:
        return [math.prod(shape) for shape in self.shapes]

    @property
    def size(self) -> int:
        """M, the length of the flat vector."""
        return sum(self.sizes)

    def entries(self) -> list[tuple[str, list[int]]]:
        """The layout as JSON can hold it."""
        return [(name, list(shape)) for name, shape in zip(self.names, self.shapes, strict=True)]

    @classmethod
    def from_entries(cls, entries: Any) -> Layout:
        """What `entries` returned, as read from a file.

        Raises:
            ValueError, TypeError: it is something else.
        """
        names, shapes = zip(*entries, strict=True)
        if not all(isinstance(name, str) for name in names):
            raise TypeError("a name is no text")
        if not all(type(length) is int and length > 0 for shape in shapes for length in shape):
            raise TypeError("a length is no positive integer")
        return cls(names, tuple(tuple(shape) for shape in shapes))

    def check(self, arrays: Sequence[NDArray[np.float32]]) -> None:
        """Makes sure that arrays are what this layout describes.

        Raises:
            ValueError: they are not float32, or of other shapes.
        """
        if any(array.dtype != np.float32 for array in arrays) or tuple(a.shape for a in arrays) != self.shapes:
            raise ValueError(f"expected float32 arrays of the shapes {self.shapes}")

    def flatten(self, arrays: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """One flat vector (M,) from the parameters' arrays, copied once."""
        self.check(arrays)
        return np.concatenate([array.reshape(-1) for array in arrays])

    def difference(self, other: Layout) -> str:
        """Where `other` first differs from this layout, in words; empty if it does not."""
        for (name, shape), (found, found_shape) in zip(self.entries(), other.entries(), strict=False):
            if name != found:
                return f"{found} stands where {name} should"
            if shape != found_shape:
                return f"{name} has the shape {tuple(found_shape)} and should have {tuple(shape)}"
        if len(self.names) != len(other.names):
            return f"it has {len(other.names)} parameters and should have {len(self.names)}"
        return ""


def spans(length: int, width: int) -> Iterator[slice]:
    """Cuts range(length) into slices of `width`; the last may be shorter."""
    return (slice(start, min(start + width, length)) for start in range(0, length, width))
