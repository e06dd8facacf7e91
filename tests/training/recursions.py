"""LARS, LAMB, Lion, Muon, Shampoo and schedule-free, written down in NumPy and float64 from their papers.

Each is a generator that keeps the optimizer's state: it is sent weights, their gradients and a rate, and yields the
weights after the step; `decays` are those of each array.
"""

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = list[NDArray[np.float64]]
Recursion = Generator[Arrays, tuple[Arrays, Arrays, float], None]


def zeros(weights: Arrays) -> Arrays:
    return [np.zeros_like(w) for w in weights]


def lars(weights: Arrays, decay: float, momentum: float, eta: float) -> Recursion:
    velocity = zeros(weights)
    while True:
        weights, gradients, rate = yield weights
        for i, (w, g) in enumerate(zip(weights, gradients, strict=True)):
            step = g
            if w.ndim > 1:
                size, of_gradient = np.linalg.norm(w), np.linalg.norm(g)
                local = eta * size / (of_gradient + decay * size) if size and of_gradient else 1.0
                step = local * (g + decay * w)
            velocity[i] = momentum * velocity[i] + rate * step
        weights = [w - v for w, v in zip(weights, velocity, strict=True)]


def lamb(weights: Arrays, decay: float, beta1: float, beta2: float, eps: float) -> Recursion:
    m, v, t = zeros(weights), zeros(weights), 0
    while True:
        weights, gradients, rate = yield weights
        t += 1
        moved = []
        for i, (w, g) in enumerate(zip(weights, gradients, strict=True)):
            m[i], v[i] = beta1 * m[i] + (1 - beta1) * g, beta2 * v[i] + (1 - beta2) * g**2
            r = m[i] / (1 - beta1**t) / (np.sqrt(v[i] / (1 - beta2**t)) + eps)
            if w.ndim > 1:
                r = r + decay * w
                size, of_step = np.linalg.norm(w), np.linalg.norm(r)
                r = r * (size / of_step if size and of_step else 1.0)
            moved.append(w - rate * r)
        weights = moved


def lion(weights: Arrays, decays: Sequence[float], beta1: float, beta2: float) -> Recursion:
    m = zeros(weights)
    while True:
        weights, gradients, rate = yield weights
        signs = [np.sign(beta1 * k + (1 - beta1) * g) for k, g in zip(m, gradients, strict=True)]
        weights = [w - rate * (s + d * w) for w, s, d in zip(weights, signs, decays, strict=True)]
        m = [beta2 * k + (1 - beta2) * g for k, g in zip(m, gradients, strict=True)]


def polynomial(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """What five Newton–Schulz steps make of the singular values of a matrix of norm 1."""
    for _ in range(5):
        values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
    return values


def orthogonalised(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """By a singular value decomposition, in the place of the steps."""
    u, s, vh = np.linalg.svd(matrix, full_matrices=False)
    return (u * polynomial(s / np.linalg.norm(matrix))) @ vh


def muon(
    weights: Arrays, decays: Sequence[float], hidden: Sequence[int], momentum: float, nesterov: bool, of_adamw: float,
    beta1: float, beta2: float, eps: float,
) -> Recursion:  # fmt: skip
    """`of_adamw` is AdamW's rate divided by Muon's; ε stands before AdamW's bias correction."""
    b, m, v, t = zeros(weights), zeros(weights), zeros(weights), 0
    while True:
        weights, gradients, rate = yield weights
        t += 1
        moved = []
        for i, (w, g) in enumerate(zip(weights, gradients, strict=True)):
            own = rate if i in hidden else rate * of_adamw
            w = w - own * decays[i] * w
            if i in hidden:
                b[i] = momentum * b[i] + g
                step = orthogonalised(((g + momentum * b[i]) if nesterov else b[i]).reshape(len(g), -1))
                moved.append(w - own * max(1, step.shape[0] / step.shape[1]) ** 0.5 * step.reshape(w.shape))
            else:
                m[i], v[i] = beta1 * m[i] + (1 - beta1) * g, beta2 * v[i] + (1 - beta2) * g**2
                root = (1 - beta2**t) ** 0.5
                moved.append(w - own * root / (1 - beta1**t) * m[i] / (np.sqrt(v[i]) + eps))
        weights = moved


def inverse_root(matrix: NDArray[np.float64], power: int, ridge: float) -> NDArray[np.float64]:
    """(matrix + ridge λmax I)^(−1 / power)."""
    values, vectors = np.linalg.eigh(matrix + ridge * np.linalg.norm(matrix, 2) * np.eye(len(matrix)))
    return vectors @ np.diag(values ** (-1 / power)) @ vectors.T


def shampoo(
    weights: Arrays, decays: Sequence[float], beta1: float, beta2: float, eps: float, ridge: float, interval: int,
    max_size: int,
) -> Recursion:  # fmt: skip
    """With all bias corrections where Meta's code has them; AdamW's ε stands before its own."""
    m, v, t = zeros(weights), zeros(weights), 0
    products: dict[tuple[int, int], NDArray[np.float64]] = {}  # by tensor and side
    roots: dict[tuple[int, int], NDArray[np.float64]] = {}
    while True:
        weights, gradients, rate = yield weights
        t += 1
        moved = []
        for i, (w, g) in enumerate(zip(weights, gradients, strict=True)):
            m[i], v[i] = beta1 * m[i] + (1 - beta1) * g, beta2 * v[i] + (1 - beta2) * g**2
            step = (1 - beta2**t) ** 0.5 / (1 - beta1**t) * m[i] / (np.sqrt(v[i]) + eps)
            if w.ndim > 1:
                matrix, direction = g.reshape(len(g), -1), m[i].reshape(len(g), -1) / (1 - beta1**t)
                sides = [side for side in (0, 1) if matrix.shape[side] <= max_size]
                for side in sides:
                    product = np.tensordot(matrix, matrix, axes=(1 - side, 1 - side))
                    products[i, side] = beta2 * products.get((i, side), 0.0) + (1 - beta2) * product
                    if t % interval == 0:
                        roots[i, side] = inverse_root(products[i, side] / (1 - beta2**t), 2 * len(sides), ridge)
                    if (i, side) in roots:
                        direction = np.apply_along_axis(roots[i, side].dot, side, direction)
                if any((i, side) in roots for side in sides):
                    step = np.linalg.norm(step) * (direction / np.linalg.norm(direction)).reshape(w.shape)
            moved.append(w - rate * (step + decays[i] * w))
        weights = moved


def schedulefree(
    weights: Arrays, decays: Sequence[float], form: str, beta1: float, beta2: float, eps: float, averages: Any = None
) -> Recursion:
    """The average of the weights after each update is appended to the list `averages`.

    The average is that of all z so far, weighted by their rates squared, from its definition and not step by step.
    """
    z, y, v = weights, weights, zeros(weights)
    path: list[Arrays] = []
    shares: list[float] = []
    while True:
        _, gradients, rate = yield y
        step = gradients
        if form == "adamw":
            v = [beta2 * k + (1 - beta2) * g**2 for k, g in zip(v, gradients, strict=True)]
            rate = rate * (1 - beta2 ** (len(path) + 1)) ** 0.5
            step = [g / (np.sqrt(k) + eps) for g, k in zip(gradients, v, strict=True)]
        z = [a - rate * (s + d * w) for a, s, d, w in zip(z, step, decays, y, strict=True)]
        path.append(z)
        shares.append(rate**2)
        x = [np.average(sequence, axis=0, weights=shares) for sequence in zip(*path, strict=True)]
        y = [(1 - beta1) * a + beta1 * b for a, b in zip(z, x, strict=True)]
        if averages is not None:
            averages.append(x)
