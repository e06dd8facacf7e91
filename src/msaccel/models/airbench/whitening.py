"""Filters that whiten small patches of images: their responses are uncorrelated, with a mean square of 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

EPSILON = 5e-4  # added to the variances, as in airbench: the responses to noise and to equal channels stay small


def whitening_filters(images: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """The eigenvectors of the patches' second moments, each over the root of its eigenvalue.

    Which sign an eigenvector has is up to the linear algebra library; here its largest component is positive.

    Args:
        images: shape ``(n, channels, height, width)``.
        side: of the patches, all of which count.

    Returns:
        Shape ``(channels * side**2, channels, side, side)``, the largest eigenvalue first.
    """
    channels, height, width = images.shape[1:]
    rows, columns = height - side + 1, width - side + 1
    taps = [
        images[:, channel, top : top + rows, left : left + columns].ravel().astype(np.float64)
        for channel in range(channels)
        for top in range(side)
        for left in range(side)
    ]
    moments = np.array([[one @ other for other in taps] for one in taps]) / len(taps[0])
    variances, vectors = np.linalg.eigh(moments)
    filters = (vectors / np.sqrt(variances + EPSILON)).T[::-1]
    largest = np.abs(filters).argmax(1)
    filters = filters * np.sign(filters[np.arange(len(filters)), largest])[:, None]
    return filters.reshape(-1, channels, side, side).astype(np.float32)
