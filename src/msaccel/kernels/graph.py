"""Graphs that are called thousands of times with tensors of few shapes."""

from __future__ import annotations

import numpy as np
from mindspore import Tensor, nn
from mindspore.graph.api import _cell_graph_executor
from numpy.typing import NDArray


def as_tensor(value: NDArray[np.generic] | float) -> Tensor:
    """A tensor that shares an array's memory, or holds a number as float32 or bool; a copy takes ten times as long.

    The array must not be changed as long as anything computes with the tensor.
    """
    if isinstance(value, float | int):
        value = np.array(value, bool if isinstance(value, bool) else np.float32)
    return Tensor.from_numpy(value)


class Graph(nn.Cell):
    """A cell whose compiled graph is found by the shapes of its inputs alone.

    MindSpore looks for the graph anew at every call and tells every cell inside which one it is: a fifth of a small
    network's update. What it looks at beside the shapes does not change here: inputs are tensors that keep their types,
    and the cell stays in training, or out of it.
    """

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self._phases: dict[tuple[tuple[int, ...], ...], str] = {}

    def __call__(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        shapes = tuple(tensor.shape for tensor in inputs)
        phase = self._phases.get(shapes)
        if phase is not None:
            return _cell_graph_executor._exec_pip(self, *inputs, phase=phase)
        out = super().__call__(*inputs)
        self._phases[shapes] = self.current_phase
        return out
