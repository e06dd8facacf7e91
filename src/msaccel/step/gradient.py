"""Loss and gradients of one micro-batch, in the precision the job asks for."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Parameter, Tensor, nn, ops

from msaccel.kernels import CrossEntropy


class Gradient(nn.Cell):
    """Forward and backward pass.

    The loss is computed in float32 whatever the network computes in. What the gradients are multiplied by enters as
    the backward pass's first factor, so a loss scale protects small float16 gradients.

    Inputs: images (n, C, H, W) float32, labels (n,) int32, factor: a float32 scalar the gradients are multiplied by.
    Outputs: mean loss, number of correctly classified samples (both float32), gradients in the parameters' order.
    """

    def __init__(self, network: nn.Cell, parameters: Sequence[Parameter], label_smoothing: float = 0.0) -> None:
        super().__init__(auto_prefix=False)
        network.set_grad()
        self.loss = CrossEntropy(label_smoothing)
        self.network = network
        self.parameters = parameters
        self.differentiate = ops.value_and_grad(self.forward, None, parameters, has_aux=True)

    def forward(self, images: Tensor, labels: Tensor, factor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loss, right = self.loss(self.network(images), labels)
        return loss * factor, loss, right

    def construct(self, images: Tensor, labels: Tensor, factor: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        (_, loss, right), gradients = self.differentiate(images, labels, factor)
        return loss, right, gradients
