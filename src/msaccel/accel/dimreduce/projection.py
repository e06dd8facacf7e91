"""Into the subspace and back: P v and Pᵀ c, sums in float64."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from msaccel.accel.dimreduce.layout import spans

WIDTH = 2**15  # columns of P that are held in float64 at a time


class Projection(Protocol):
    """The two maps that stage 2 needs; where P is spread over ranks, they reduce."""

    def project(self, vector: NDArray[np.float32]) -> NDArray[np.float64]:
        """P v (k,) of a flat vector (M,)."""

    def lift(self, coordinates: NDArray[np.float64]) -> NDArray[np.float32]:
        """Pᵀ c (M,) of coordinates (k,)."""


class Whole:
    """All rows of P (k, M) in one place, possibly mapped from a file."""

    def __init__(self, matrix: NDArray[np.float32]) -> None:
        self.matrix = matrix

    def project(self, vector: NDArray[np.float32]) -> NDArray[np.float64]:
        """P v (k,) of a flat vector (M,)."""
        result = np.zeros(len(self.matrix))
        for span in spans(self.matrix.shape[1], WIDTH):
            result += self.matrix[:, span].astype(np.float64) @ vector[span].astype(np.float64)
        return result

    def lift(self, coordinates: NDArray[np.float64]) -> NDArray[np.float32]:
        """Pᵀ c (M,) of coordinates (k,)."""
        result = np.empty(self.matrix.shape[1], np.float32)
        for span in spans(len(result), WIDTH):
            result[span] = coordinates @ self.matrix[:, span].astype(np.float64)
        return result


def square(vector: NDArray[np.float32]) -> float:
    """‖v‖² of a flat vector, in float64."""
    return sum(float(np.square(vector[span], dtype=np.float64).sum()) for span in spans(len(vector), WIDTH))
