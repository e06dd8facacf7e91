"""Many parameters as one vector: one graph reads them all, another sets them all, instead of a call for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msaccel.kernels.flat import parted


class Flatten(nn.Cell):
    """All values in one vector (S,)."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        super().__init__(auto_prefix=False)
        self.parameters = ParameterTuple(parameters)

    def construct(self) -> Tensor:
        flat: tuple[Tensor, ...] = ()
        for value in self.parameters:
            flat = flat + (value.reshape(-1) * 1,)
        return ops.concat(flat)


class Place(nn.Cell):
    """Sets all parameters from one vector (S,)."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        super().__init__(auto_prefix=False)
        self.parameters = ParameterTuple(parameters)
        self.sizes = tuple(int(np.prod(value.shape)) for value in parameters)

    def construct(self, flat: Tensor) -> Tensor:
        parts = parted(flat, self.sizes)
        for i in range(len(self.sizes)):
            ops.assign(self.parameters[i], parts[i].reshape(self.parameters[i].shape))
        return flat
