"""Snapshots with known rows, and quadratics with a known minimum."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msaccel.accel.dimreduce import snapshots
from msaccel.accel.dimreduce.layout import Layout
from msaccel.accel.dimreduce.snapshots import Snapshot


def flat_layout(size: int) -> Layout:
    """Two parameters where there are numbers enough for two, named against the alphabet."""
    if size == 1:
        return Layout(("bias",), ((1,),))
    return Layout(("weight", "bias"), ((size - size // 2,), (size // 2,)))


def save(folder: Path, rows: NDArray[np.float32]) -> list[Snapshot]:
    """Each row as a snapshot of its own."""
    layout = flat_layout(rows.shape[1])
    for update, row in enumerate(rows):
        snapshots.write(folder, layout, np.split(row, np.cumsum(layout.sizes)[:-1]), update, keep=len(rows))
    return snapshots.find(folder, layout)


def rows_with(deviations: NDArray[np.float64], count: int, size: int, seed: int = 0) -> NDArray[np.float32]:
    """`count` snapshots of `size` weights with the given singular values once they are centred."""
    draw = np.random.default_rng(seed).standard_normal
    centred = np.column_stack([np.ones(count), draw((count, len(deviations)))])
    left = np.linalg.qr(centred)[0][:, 1:]
    right = np.linalg.qr(draw((size, len(deviations))))[0]
    return (left * deviations @ right.T).astype(np.float32)


@dataclass
class Quadratic:
    """½ (w − w*)ᵀ Pᵀ H P (w − w*), whose gradient lies in the subspace."""

    basis: NDArray[np.float32]
    hessian: NDArray[np.float64]
    minimum: NDArray[np.float64]

    @classmethod
    def random(cls, seed: int, eigenvalues: NDArray[np.float64], size: int = 40) -> Quadratic:
        draw = np.random.default_rng(seed).standard_normal
        components = len(eigenvalues)
        basis = np.linalg.qr(draw((size, components)))[0].T.astype(np.float32)
        turn = np.linalg.qr(draw((components, components)))[0]
        return cls(basis, turn * eigenvalues @ turn.T, draw(size))

    def coordinates(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.basis.astype(np.float64) @ (weights - self.minimum)

    def loss(self, weights: NDArray[np.float64]) -> float:
        return float(self.coordinates(weights) @ self.hessian @ self.coordinates(weights)) / 2

    def gradient(self, weights: NDArray[np.float64]) -> NDArray[np.float32]:
        return (self.hessian @ self.coordinates(weights) @ self.basis.astype(np.float64)).astype(np.float32)
