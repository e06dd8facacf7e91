"""Convolution, the dense network, its loss and the optimizers, written down in NumPy and float64."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def distance(found: Sequence[Array], expected: Sequence[Array]) -> float:
    """‖found − expected‖ / ‖expected‖ over all arrays together; of zeros, 0 if they are found."""
    pairs = [(np.asarray(a, float), np.asarray(b, float)) for a, b in zip(found, expected, strict=True)]
    assert all(a.shape == b.shape for a, b in pairs)
    error = sum(float(np.sum((a - b) ** 2)) for a, b in pairs)
    size = sum(float(np.sum(b**2)) for _, b in pairs)
    return (error / size) ** 0.5 if size else float(error > 0)


def positions(x: Array, kernel_size: int, stride: int, padding: int) -> Iterator[tuple[int, int, tuple[slice, slice]]]:
    """For every output position, the rows and columns of the padded input that it sees."""
    height, width = (side + 2 * padding - kernel_size for side in x.shape[2:])
    for i, top in enumerate(range(0, height + 1, stride)):
        for j, left in enumerate(range(0, width + 1, stride)):
            yield i, j, (slice(top, top + kernel_size), slice(left, left + kernel_size))


def convolution(x: Array, weight: Array, stride: int = 1, padding: int = 0) -> Array:
    """(n, c, h, w) and (o, c, k, k) to (n, o, h', w'), one output position after the other."""
    kernel_size = weight.shape[2]
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    height, width = ((side + 2 * padding - kernel_size) // stride + 1 for side in x.shape[2:])
    y = np.zeros((len(x), len(weight), height, width))
    for i, j, (rows, columns) in positions(x, kernel_size, stride, padding):
        y[:, :, i, j] = np.tensordot(padded[:, :, rows, columns], weight, ((1, 2, 3), (1, 2, 3)))
    return y


def convolution_gradients(x: Array, weight: Array, dy: Array, stride: int, padding: int) -> tuple[Array, Array]:
    """Gradients of sum(dy · convolution(x, weight)) by x and by weight."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    dx, dweight = np.zeros_like(padded), np.zeros_like(weight)
    for i, j, (rows, columns) in positions(x, weight.shape[2], stride, padding):
        dx[:, :, rows, columns] += np.tensordot(dy[:, :, i, j], weight, 1)
        dweight += np.tensordot(dy[:, :, i, j], padded[:, :, rows, columns], ((0,), (0,)))
    height, width = x.shape[2:]
    return dx[:, :, padding : padding + height, padding : padding + width], dweight


def pool(x: Array) -> Array:
    """Largest of each 2 × 2."""
    n, c, height, width = x.shape
    return x.reshape(n, c, height // 2, 2, width // 2, 2).max((3, 5))


def lenet(weights: Sequence[Array], images: Array) -> Array:
    """Logits of LeNet5 from its 8 parameters."""
    conv1, conv2, *dense = (np.asarray(weight, float) for weight in weights)
    x = pool(np.maximum(convolution(np.asarray(images, float), conv1), 0))
    return mlp(dense, pool(np.maximum(convolution(x, conv2), 0)))


def mlp(weights: Sequence[Array], images: Array) -> Array:
    """Logits of dense layers (weight, bias, weight, ...) with ReLU between them."""
    return _activations(weights, images)[-1]


def _activations(weights: Sequence[Array], images: Array) -> list[Array]:
    values = [np.asarray(images, float).reshape(len(images), -1)]
    for layer in range(0, len(weights), 2):
        y = values[-1] @ np.asarray(weights[layer], float).T + weights[layer + 1]
        values.append(y if layer == len(weights) - 2 else np.maximum(y, 0))
    return values


def cross_entropy(logits: Array, labels: NDArray[np.int32]) -> float:
    """Mean over the samples."""
    shifted = logits - logits.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(labels)), labels]))


def mlp_gradients(weights: Sequence[Array], images: Array, labels: NDArray[np.int32]) -> list[Array]:
    """Gradients of the mean cross-entropy by each weight and bias of `mlp`."""
    *inputs, logits = _activations(weights, images)
    dy = np.exp(logits - logits.max(1, keepdims=True))
    dy = (dy / dy.sum(1, keepdims=True) - np.eye(logits.shape[1])[labels]) / len(labels)
    gradients: list[Array] = []
    for layer in reversed(range(len(inputs))):
        x = inputs[layer]
        gradients[:0] = [dy.T @ x, dy.sum(0)]
        dy = (dy @ np.asarray(weights[2 * layer], float)) * (x > 0)
    return gradients


def norm(gradients: Sequence[Array]) -> float:
    """Euclidean norm over all arrays together."""
    return float(np.sqrt(sum(np.sum(np.asarray(g, float) ** 2) for g in gradients)))


def clip(gradients: Sequence[Array], bound: float, mode: str = "norm") -> list[Array]:
    """By the norm of all together, or by the value of each element."""
    if mode == "value":
        return [np.clip(np.asarray(g, float), -bound, bound) for g in gradients]
    factor = bound / max(norm(gradients), bound)
    return [factor * np.asarray(g, float) for g in gradients]


def adasum(a: Array, b: Array) -> Array:
    """Of two vectors; a zero vector contributes nothing."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    dot, a_square, b_square = np.sum(a * b), np.sum(a * a), np.sum(b * b)
    return (1 - dot / (2 * a_square) if a_square else 0) * a + (1 - dot / (2 * b_square) if b_square else 0) * b


def adasum_of(parts: Sequence[Sequence[Array]]) -> list[Array]:
    """Tensor by tensor over 2^x parts: of the first half's Adasum and the second half's."""
    if len(parts) == 1:
        return list(parts[0])
    half = len(parts) // 2
    return [adasum(a, b) for a, b in zip(adasum_of(parts[:half]), adasum_of(parts[half:]), strict=True)]


Steps = Iterator[Array]


def momentum(
    w: Array, gradients: Sequence[Array], rates: Sequence[float], mu: float, decay: float, nesterov: bool = False
) -> Steps:
    """PyTorch's SGD, momentum 0 included: the decay joins the gradient, the rate stays outside the velocity."""
    velocity = np.zeros_like(w)
    for gradient, rate in zip(gradients, rates, strict=True):
        g = gradient + decay * w
        velocity = mu * velocity + g
        w = w - rate * (g + mu * velocity if nesterov else velocity)
        yield w


def adam(
    w: Array,
    gradients: Sequence[Array],
    rates: Sequence[float],
    betas: tuple[float, float],
    eps: float,
    decay: float,
    decoupled: bool,
    eps_before_correction: bool = False,
) -> Steps:
    """PyTorch's Adam and AdamW; with `eps_before_correction`, "ε̂" of the paper's remark in section 2."""
    (beta1, beta2), m, v = betas, np.zeros_like(w), np.zeros_like(w)
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        g = gradient if decoupled else gradient + decay * w
        if decoupled:
            w = w - rate * decay * w
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        root = np.sqrt(1 - beta2**t)
        denominator = (np.sqrt(v) + eps) / root if eps_before_correction else np.sqrt(v) / root + eps
        w = w - rate / (1 - beta1**t) * m / denominator
        yield w
