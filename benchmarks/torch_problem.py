"""The small problem that PyTorch and msaccel both solve: samples, first weights and rates (`torch_references.py`)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

SIZES, BATCH, UPDATES = (6, 5, 7, 3), 16, 20
KEPT = (5, 20)  # the updates whose weights are written
SHARES = (0.4, 0.7, 1.0, 1.0) + (1.0, 0.8, 0.5, 0.3) * 4  # of the peak rate
Arrays = dict[str, NDArray[Any]]


def drawn() -> Arrays:
    """Samples of all updates and the first weights, from numbers that are the same in every version of NumPy."""
    draw = np.random.RandomState(0)
    size = sum((rows + 1) * columns for rows, columns in pairwise(SIZES))
    return {
        "start": draw.normal(0, 0.5, size).astype(np.float32),
        "images": draw.normal(0, 1, (UPDATES, BATCH, SIZES[0])).astype(np.float32),
        "labels": draw.randint(0, SIZES[-1], (UPDATES, BATCH)).astype(np.int32),
    }


def network_of(start: NDArray[Any]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(SIZES):
        layers += [nn.Linear(inputs, outputs, dtype=torch.float64), nn.ReLU()]
    network = nn.Sequential(*layers[:-1])
    nn.utils.vector_to_parameters(torch.from_numpy(start.astype(float)), network.parameters())
    return network


def flat(network: nn.Module) -> NDArray[Any]:
    return nn.utils.parameters_to_vector(network.parameters()).detach().numpy().copy()
