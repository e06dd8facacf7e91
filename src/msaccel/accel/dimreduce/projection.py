"""Into the subspace and back: P v and Pᵀ c, summed in float64; for a whole P, and for one with sharded rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from msaccel.accel.dimreduce import basis
from msaccel.accel.dimreduce.layout import spans
from msaccel.distributed.communicator import Communicator

WIDTH = 2**15  # columns of P that are held in float64 at a time


class Projection:
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


class ShardedProjection:
    """Projects with the whole P (k, M), of which this process holds some rows.

    Args:
        rows: of P, those that `basis.rows` gives this process; there may be none.
        components: k.
        comm: all processes.

    Attributes:
        exchanged: bytes that a rank has handed to the others, if there are any.
    """

    def __init__(self, rows: NDArray[np.float32], components: int, comm: Communicator) -> None:
        self.own, self.comm, self.components = Projection(rows), comm, components
        self.span = basis.rows(comm.rank, comm.world_size, components)
        self.exchanged = 0

    def project(self, vector: NDArray[np.float32]) -> NDArray[np.float64]:
        """P v (k,) of a flat vector (M,)."""
        result = np.zeros(self.components)
        self.exchanged += result.nbytes
        result[self.span] = self.own.project(vector)
        return self.comm.all_sum(result)

    def lift(self, coordinates: NDArray[np.float64]) -> NDArray[np.float32]:
        """Pᵀ c (M,) of coordinates (k,)."""
        own = self.own.lift(coordinates[self.span])
        self.exchanged += own.nbytes
        return self.comm.all_reduce(own)


def square(vector: NDArray[np.float32]) -> float:
    """‖v‖² of a flat vector, in float64."""
    return sum(float(np.square(vector[span], dtype=np.float64).sum()) for span in spans(len(vector), WIDTH))
