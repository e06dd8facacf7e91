"""Many parameters as one vector: one graph reads them all, another sets them all, instead of a call for each."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msaccel.kernels.flat import Split, joined


class Flatten(nn.Cell):
    """All values in one vector (S,)."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        super().__init__(auto_prefix=False)
        self.parameters = ParameterTuple(parameters)

    def construct(self) -> Tensor:
        return joined(self.parameters) * 1


class Place(nn.Cell):
    """Sets all parameters from one vector (S,)."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        super().__init__(auto_prefix=False)
        self.parameters = ParameterTuple(parameters)
        self.split = Split([value.shape for value in parameters])

    def construct(self, flat: Tensor) -> Tensor:
        values = self.split(flat)
        for i in range(len(self.parameters)):
            ops.assign(self.parameters[i], values[i])
        return flat
