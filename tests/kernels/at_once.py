"""A script: runs convolutions one by one, then many at the same time, and prints a digest of the results."""

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from msaccel.kernels.conv_shape import Geometry
from tests.kernels import operators, reference

GEOMETRY = Geometry.square(3, 1, 1, 1, 1)


def right(x: np.ndarray, weight: np.ndarray, dy: np.ndarray, geometry: Geometry) -> list[np.ndarray]:
    """The weight's gradient, after a comparison with float64."""
    (found,) = operators.gradients(x, weight, [], dy, geometry)[1:]
    wanted = reference.gradients(x, weight, dy, geometry)[1]
    assert np.abs(found - wanted).max() <= 2e-6 * np.abs(wanted).max()
    return [found]


def digest(seed: int) -> str:
    """Digest of a convolution large enough for several threads, and of its gradients."""
    draw = np.random.default_rng(seed).standard_normal
    shapes = [(4, 24 + seed % 3, 30, 30), (40, 24 + seed % 3, 3, 3), (40,), (4, 40, 30, 30)]
    x, weight, bias, dy = (draw(shape).astype(np.float32) for shape in shapes)
    y = operators.forward(x, weight, [bias], GEOMETRY)
    results = [y, *operators.gradients(x, weight, [bias], dy, GEOMETRY)]
    x, weight, dy = (draw(shape).astype(np.float32) for shape in [(2, 48, 15, 15), (64, 48, 3, 3), (2, 64, 15, 15)])
    results += operators.as_laid(operators.blocks(x), weight, operators.blocks(dy), GEOMETRY)
    results += operators.as_laid(x, weight, dy, GEOMETRY)
    x, weight, dy = (draw(shape).astype(np.float32) for shape in [(70, 1, 30, 30), (40, 1, 3, 3), (70, 40, 30, 30)])
    results += operators.as_laid(x, weight, dy, GEOMETRY)
    x, weight, dy = (draw(shape).astype(np.float32) for shape in [(8, 65, 24, 24), (65, 1, 7, 7), (8, 65, 24, 24)])
    results += right(x, weight, dy, Geometry.square(7, 1, 3, 1, 65))
    x, weight, dy = (draw(shape).astype(np.float32) for shape in [(8, 1024, 5, 5), (70, 1024, 1, 1), (8, 70, 5, 5)])
    results += right(x, weight, dy, Geometry.square(1, 1, 0, 1, 1))
    return hashlib.sha256(b"".join(array.tobytes() for array in results)).hexdigest()


seeds = range(3)
alone = [digest(seed) for seed in seeds]
with ThreadPoolExecutor(6) as threads:  # ctypes releases Python's lock
    concurrent = list(threads.map(digest, [*seeds, *seeds, *seeds]))
assert concurrent == 3 * alone
sys.stdout.write("".join(alone))
