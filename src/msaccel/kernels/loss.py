"""Cross entropy fused with the number of correctly classified samples."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.kernels.backend import current_backend
from msaccel.kernels.custom_op import ONE, Shape, operator


class _CrossEntropy(nn.Cell):
    """The operators: from logits (N, classes) and labels (N,) to the loss and the number of correct samples."""

    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self.numbers = Tensor([smoothing], ms.float32)

        def shapes(logits: Shape, *others: Shape) -> tuple[Shape, Shape]:
            return ONE, ONE

        def of_logits(dloss: Any, logits: Any, *others: Any) -> Any:
            return logits

        self.forward = operator("cross_entropy", shapes, lambda logits, *others: (logits, logits))
        self.gradient = operator("cross_entropy_gradient", of_logits, of_logits)

    def construct(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward(logits, labels, self.numbers)

    def bprop(
        self, logits: Tensor, labels: Tensor, out: tuple[Tensor, ...], dout: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        return self.gradient(dout[0], logits, labels, self.numbers), ops.zeros_like(labels)


class CrossEntropy(nn.Cell):
    """Mean cross entropy per label, and the number of labels whose logit is the largest.

    With smoothing s the target is 1 − s for the label and s / (classes − 1) for each other class, as in
    `CrossEntropySmooth` of tutorials 003 and 004. MindSpore's own spreads s over all classes.

    Inputs: logits (N, classes), labels (N,) int32, or (N, T, classes) and (N, T). Outputs: two float32 scalars.
    """

    def __init__(self, smoothing: float = 0.0) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.fused = current_backend().library is not None
        if self.fused:
            self.loss = _CrossEntropy(smoothing)

    def construct(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits.astype(ms.float32)
        if logits.ndim == 3:
            logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
        if self.fused:
            out = self.loss(logits, labels)
            return out[0].reshape(()), out[1].reshape(())
        classes = logits.shape[1]
        scaled_smoothing = self.smoothing * classes / max(classes - 1, 1)
        loss = ops.cross_entropy(logits, labels, label_smoothing=scaled_smoothing)
        return loss, ops.equal(logits.argmax(1).astype(ms.int32), labels).astype(ms.float32).sum()
