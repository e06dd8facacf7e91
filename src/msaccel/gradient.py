"""Loss and gradients of one micro-batch, in the precision the job asks for."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops


class Gradient(nn.Cell):
    """Forward and backward pass.

    The loss is computed in float32 whatever the network computes in. What the gradients are multiplied by enters as
    the backward pass's first factor, so a loss scale protects small float16 gradients.

    Inputs: images (n, C, H, W) float32, labels (n,) int32, factor: a float32 scalar the gradients are multiplied by.
    Outputs: mean loss, number of correctly classified samples (both float32), gradients in the parameters' order.
    """

    def __init__(self, network: nn.Cell, parameters: Sequence[Parameter], label_smoothing: float = 0.0) -> None:
        super().__init__(auto_prefix=False)
        self.label_smoothing = label_smoothing
        network.set_grad()
        self.network = network
        self.parameters = parameters
        self.differentiate = ops.value_and_grad(self.forward, None, parameters, has_aux=True)

    def forward(self, images: Tensor, labels: Tensor, factor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = ops.cast(self.network(images), ms.float32)
        loss = cross_entropy(logits, labels, self.label_smoothing)
        return loss * factor, loss, logits

    def construct(self, images: Tensor, labels: Tensor, factor: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        (_, loss, logits), gradients = self.differentiate(images, labels, factor)
        return loss, correct(logits, labels), gradients


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Mean loss of logits (n, classes); float32 scalar.

    With smoothing s the target is 1 − s for the label and s / (classes − 1) for each other class, as the
    `CrossEntropySmooth` of tutorials 003 and 004; MindSpore's own spreads s over all classes.
    """
    if smoothing == 0:
        return ops.cross_entropy(logits, labels)
    classes = logits.shape[1]
    return ops.cross_entropy(logits, labels, label_smoothing=smoothing * classes / (classes - 1))


def correct(logits: Tensor, labels: Tensor) -> Tensor:
    """How many of the labels (n,) are the largest of their logits (n, classes); float32 scalar."""
    return ops.equal(logits.argmax(1).astype(ms.int32), labels).astype(ms.float32).sum()


def scale(gradients: tuple[Tensor, ...], factor: Tensor) -> tuple[Tensor, ...]:
    """Every gradient as float32, times the factor."""
    scaled: tuple[Tensor, ...] = ()
    for gradient in gradients:
        scaled = scaled + (ops.cast(gradient, ms.float32) * factor,)
    return scaled


def global_norm(gradients: tuple[Tensor, ...]) -> Tensor:
    """Euclidean norm over all tensors, float32; rows are summed in float32 and rows' sums in float64.

    One float32 sum over a tensor of 3 million elements is wrong by a thousandth.
    """
    squares: tuple[Tensor, ...] = ()
    for gradient in gradients:
        squares = squares + ((gradient * gradient).sum(-1).astype(ms.float64).sum(),)
    return ops.sqrt(ops.stack(squares).sum()).astype(ms.float32)
