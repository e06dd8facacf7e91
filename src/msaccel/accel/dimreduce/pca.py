"""Principal directions of snapshots: exact, deterministic, and in O(k·M) memory.

C is the N × M matrix of snapshots, each less their mean. Its Gram matrix G = C Cᵀ (N × N) has the squared singular
values and the left singular vectors of C, from which the directions follow as combinations of C's rows (DLDR,
arXiv 2103.11154; Sirovich's method of snapshots). C streams through in blocks of columns, in float64, three times:

1. for G = U diag(λ) Uᵀ. Squaring costs half the digits: directions whose deviation is 1e-6 of the largest would come
   out only 1e-4 from orthogonal to each other.
2. for H = (W C)(W C)ᵀ with W = diag(λ^-½) Uᵀ, λ kept above its own rounding. The rows of W C are nearly orthonormal,
   so H loses nothing, and with any factor H = F Fᵀ the singular values Σ and left singular vectors Y of the N × N
   matrix U diag(λ^½) F are those of C (the second pass of CholeskyQR2, Yamamoto et al., ETNA 44, 2015).
3. for P, the k leading rows of Σ⁻¹ Yᵀ C, rounded to float32.

A direction counts towards the rank if its deviation exceeds what rounding the weights to float32 makes by itself:
snapshots of weights that no longer move add none.

Signs: of the snapshots' coefficients along a direction the one of largest magnitude is positive, the earliest if
several agree in three digits. So the result depends on nothing but the files and the width of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from msaccel.accel.dimreduce.basis import Basis
from msaccel.accel.dimreduce.snapshots import Snapshot, columns, verify
from msaccel.errors import CombinationError

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
    left, deviations = refined(snapshots, gram, width)
    rank = int((deviations > rounding(gram, square_of_mean, layout.size)).sum())
    if rank < components:
        raise CombinationError(
            f"accel.dimreduce.components={components} is more than the rank {rank} of the {count} snapshots; lower it "
            "(accel.dimreduce.from_run=RUN_ID takes the snapshots of an earlier run), or raise "
            "accel.dimreduce.snapshot.count."
        )
    left, deviations = left[:, :components], deviations[:components]
    combine = (left * signs(left) / deviations).T
    matrix = np.empty((components, layout.size), np.float32)
    for span, block, _ in centred(snapshots, width):
        matrix[:, span] = combine @ block
    variance = deviations**2 / (count - 1)
    total = float(np.trace(gram)) / (count - 1)
    return Basis(matrix, tuple(variance.tolist()), total, rank, layout, tuple(s.digest for s in snapshots))


def refined(snapshots: Sequence[Snapshot], gram: Float64s, width: int) -> tuple[Float64s, Float64s]:
    """Left singular vectors (N, N) and singular values (N,) of C, as exact as if G had not been formed."""
    values, vectors = np.linalg.eigh(gram)
    lowest = 256 * 2.0**-53 * float(np.trace(gram))  # well above what rounding makes of zero
    scales = np.sqrt(np.maximum(values, lowest or 1.0))
    squares, turn = np.linalg.eigh(covariance(snapshots, (vectors / scales).T, width)[0])
    left, deviations, _ = np.linalg.svd(vectors * scales @ (turn * np.sqrt(np.maximum(squares, 0))))
    return left, deviations


def centred(snapshots: Sequence[Snapshot], width: int) -> Iterator[tuple[slice, Float64s, Float64s]]:
    """Yields blocks: which columns, C in these columns (N, w), and the mean that was subtracted (w,)."""
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


def rounding(gram: Float64s, square_of_mean: float, size: int) -> float:
    """The largest deviation (a singular value of C) that rounding the weights to float32 can make.

    It changes each weight by at most 2^-24 of it; a matrix of N × M independent errors of size e has the norm
    e (√M + √N), and e² is 2^-48 of the mean square of the weights.
    """
    count = len(gram)
    square = float(np.trace(gram)) / count + square_of_mean  # of a snapshot's norm, on average
    return float(2.0**-24 * np.sqrt(square) * (1 + np.sqrt(count / size)))


def signs(left: Float64s) -> Float64s:
    """±1 for each column of Y (N, k), by the rule above."""
    deciding = np.abs(left / np.abs(left).max(axis=0)).round(3).argmax(axis=0)
    return np.sign(left[deciding, np.arange(left.shape[1])])
