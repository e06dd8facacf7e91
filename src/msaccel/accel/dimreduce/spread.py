"""P with its rows spread over processes, so that each holds about k / R of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from msaccel.accel.dimreduce import basis
from msaccel.accel.dimreduce.projection import Whole
from msaccel.distributed.communicator import Communicator


class Spread:
    """The rows of P (k, M) that this process holds, and the maps of the whole P.

    Args:
        rows: of P, those that `basis.rows` gives this process; there may be none.
        components: k.
        comm: all processes.
    """

    def __init__(self, rows: NDArray[np.float32], components: int, comm: Communicator) -> None:
        self.own, self.comm, self.components = Whole(rows), comm, components
        self.span = basis.rows(comm.rank, comm.world_size, components)

    def project(self, vector: NDArray[np.float32]) -> NDArray[np.float64]:
        """P v (k,) of a flat vector (M,)."""
        result = np.zeros(self.components)
        result[self.span] = self.own.project(vector)
        return self.comm.all_sum(result)

    def lift(self, coordinates: NDArray[np.float64]) -> NDArray[np.float32]:
        """Pᵀ c (M,) of coordinates (k,)."""
        return self.comm.all_reduce(self.own.lift(coordinates[self.span]))
