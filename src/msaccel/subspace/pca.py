"""Principal directions of snapshots: exact, deterministic, and in O(k·M) memory.

C is the N × M matrix of snapshots, each less their mean. Its Gram matrix G = C Cᵀ (N × N) has the squared singular
values and the left singular vectors of C, from which the directions follow as combinations of C's rows (DLDR,
arXiv 2103.11154; Sirovich's method of snapshots). C streams through in blocks of columns, in float64, three times:

1. for G, its eigenvalues λ and eigenvectors U. Squaring costs half the digits: directions whose deviation is 1e-6 of
   the largest would come out only 1e-4 from orthogonal to each other.
2. for H = (W C)(W C)ᵀ with W = diag(λ^-½) Uᵀ. The rows of W C are nearly orthonormal, so H keeps all digits, and with
   H = L Lᵀ the rows of Q = L⁻¹ W C are orthonormal (CholeskyQR2, Yamamoto et al., ETNA 44, 2015). C is
   (U diag(λ^½) L) Q, so the singular value decomposition of the small factor in brackets gives that of C.
3. for P, the k leading directions, rounded to float32.

A direction counts towards the rank if its deviation exceeds both what rounding in float64 makes of G, and what
rounding the weights to float32 makes by itself: snapshots of weights that no longer move add none.

Signs: of the snapshots' coefficients along a direction the one of largest magnitude is positive, the earliest if
several agree in three digits. So the result depends on nothing but the files and the width of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from msaccel.errors import CombinationError
from msaccel.subspace.basis import Basis
from msaccel.subspace.snapshots import Snapshot, columns, verify

WIDTH = 2**15  # columns in a block: 25 MB of working memory with N = 40, and 128 KiB in each read

Float64s = NDArray[np.float64]


def principal(snapshots: Sequence[Snapshot], components: int, width: int = WIDTH) -> Basis:
    """Finds the leading principal directions of the weights.

    Args:
        snapshots: N of them, of one layout, in order of update.
        components: k.
        width: columns in a block; the working memory beside P is about 20·N·width bytes.

    Raises:
        CheckpointError: a snapshot has changed since it was written, or its weights are not all finite.
        CombinationError: the snapshots have fewer than k directions.
    """
    for snapshot in snapshots:
        verify(snapshot)
    count, layout = len(snapshots), snapshots[0].layout
    gram, square_of_mean = covariance(snapshots, np.eye(count), width)
    values, vectors = (array[..., ::-1] for array in np.linalg.eigh(gram))
    rank = int((values > noise(gram, square_of_mean, layout.size)).sum())
    if rank < components:
        raise CombinationError(
            f"accel.dimreduce.components={components} is more than the rank {rank} of the {count} snapshots; lower it, "
            "or raise accel.dimreduce.snapshot.count."
        )
    deviations, vectors = np.sqrt(values[:rank]), vectors[:, :rank]
    whiten = (vectors / deviations).T
    cholesky = np.linalg.cholesky(covariance(snapshots, whiten, width)[0])
    left, deviations, right = np.linalg.svd(vectors * deviations @ cholesky, full_matrices=False)
    right *= signs(left)[:, None]
    combine = right[:components] @ np.linalg.solve(cholesky, whiten)
    matrix = np.empty((components, layout.size), np.float32)
    for span, block, _ in centred(snapshots, width):
        matrix[:, span] = combine @ block
    variance = deviations[:components] ** 2 / (count - 1)
    total = float(np.trace(gram)) / (count - 1)
    return Basis(matrix, tuple(variance.tolist()), total, rank, layout, tuple(s.digest for s in snapshots))


def centred(snapshots: Sequence[Snapshot], width: int) -> Iterator[tuple[slice, Float64s, Float64s]]:
    """Yields which columns, C there (N, w), and the mean that was subtracted (w,)."""
    for span, values in columns(snapshots, width):
        block = values.astype(np.float64)
        mean = block.mean(axis=0)
        block -= mean
        yield span, block, mean


def covariance(snapshots: Sequence[Snapshot], combine: Float64s, width: int) -> tuple[Float64s, float]:
    """(A C)(A C)ᵀ for combinations A (r, N) of the centred snapshots, and the squared norm of their mean."""
    total, square = np.zeros((len(combine), len(combine))), 0.0
    for _, block, mean in centred(snapshots, width):
        combined = combine @ block
        total += combined @ combined.T
        square += float(mean @ mean)
    return total, square


def noise(gram: Float64s, square_of_mean: float, size: int) -> float:
    """The largest eigenvalue of G that rounding alone can make.

    Rounding to float32 adds an error of at most 2^-24 of each weight; a matrix of N × M independent errors of size e
    has the norm e (√M + √N). Float64 leaves a few times 2^-53 of G's trace; 256 times that is far enough from it for
    the second pass to set right the rest.
    """
    count, trace = len(gram), float(np.trace(gram))
    rounding = 2.0**-48 * (trace / count + square_of_mean) * (1 + np.sqrt(count / size)) ** 2
    return float(max(rounding, 256 * 2.0**-53 * trace))


def signs(left: Float64s) -> Float64s:
    """±1 for each column of U (N, r), by the rule above."""
    deciding = np.abs(left / np.abs(left).max(axis=0)).round(3).argmax(axis=0)
    return np.sign(left[deciding, np.arange(left.shape[1])])
