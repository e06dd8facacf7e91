"""P, the k leading principal directions of the weights, with where it came from, and its file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msaccel.accel.dimreduce import tensor_files
from msaccel.accel.dimreduce.layout import Layout

KIND = tensor_files.Kind("msaccel-pca-1", "the PCA matrix", "accel.dimreduce.pca.path")
TENSOR = "components"


@dataclass(frozen=True)
class Basis:
    """What PCA found.

    Attributes:
        matrix: P (k, M), float32, its rows orthonormal and in the order of decreasing variance.
        variance: of the snapshots along each row, squared weights (k,).
        total_variance: of the snapshots, the same unit; variances have N − 1 degrees of freedom.
        rank: how many directions stand out from rounding, at least k.
        layout: of the columns.
        snapshots: SHA-256 of each snapshot, in order of update.
    """

    matrix: NDArray[np.float32]
    variance: tuple[float, ...]
    total_variance: float
    rank: int
    layout: Layout
    snapshots: tuple[str, ...]

    @property
    def explained(self) -> float:
        """The share of the variance that the k directions hold."""
        return sum(self.variance) / self.total_variance

    def save(self, path: Path) -> None:
        """Writes all of it to one file, atomically."""
        facts = {
            "variance": self.variance,
            "total_variance": self.total_variance,
            "rank": self.rank,
            "layout": self.layout.entries(),
            "snapshots": self.snapshots,
        }
        tensor_files.write(path, {TENSOR: self.matrix}, KIND, facts)


def load(path: Path, layout: Layout, components: int) -> Basis:
    """Reads what `Basis.save` wrote.

    Args:
        path: of the file.
        layout: of the network.
        components: k.

    Raises:
        CheckpointError: the file is missing, damaged, or of another network or k.
    """
    contents = tensor_files.read(path, KIND)
    facts = contents.facts
    try:
        found = Layout.from_entries(facts["layout"])
        variance = tuple(float(value) for value in facts["variance"])
        total, rank, digests = float(facts["total_variance"]), int(facts["rank"]), tuple(facts["snapshots"])
        if not 0 < total < math.inf or not all(map(math.isfinite, variance)):
            raise ValueError("a variance is no positive number")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise KIND.refuse(path, f"its metadata are not understood: {error!r}") from error
    if difference := layout.difference(found):
        raise KIND.refuse(path, difference)
    shape = (components, layout.size)
    if contents.shapes != {TENSOR: shape} or len(variance) != components:
        raise KIND.refuse(path, f"it holds {contents.shapes} and accel.dimreduce.components={components} needs {shape}")
    matrix = np.fromfile(path, "<f4", offset=contents.start).reshape(shape)
    if not all(np.isfinite(row).all() for row in matrix):
        raise KIND.refuse(path, "its numbers are not all finite")
    return Basis(matrix, variance, total, rank, found, digests)


def rows(rank: int, ranks: int, components: int) -> slice:
    """Which rows of P a rank holds: shares in rank order whose sizes differ by at most one; may be empty if k < R."""
    return slice(rank * components // ranks, (rank + 1) * components // ranks)
