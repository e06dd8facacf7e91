"""Evaluation on every sample of a set, the last short batch included."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from mindspore import Tensor, nn, ops

from msaccel.data import Dataset
from msaccel.distributed.communicator import SINGLE_PROCESS, Communicator
from msaccel.kernels import CrossEntropy

_PIXELS = 1_000_000  # of a batch's images: the unfolded columns of LeNet's first layer take 80 MB then
_WEIGHTS = 30_000_000  # of a convolution, over a batch: unfolding repeats them for each sample, here 120 MB a layer


@dataclass(frozen=True)
class Score:
    """Mean loss per sample and the share of samples classified correctly (0 to 1)."""

    loss: float
    accuracy: float


class Evaluation(nn.Cell):
    """Forward pass alone. Inputs as in training; output [mean loss, correctly classified]."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.loss = network, CrossEntropy()

    def construct(self, images: Tensor, labels: Tensor) -> Tensor:
        return ops.stack(self.loss(self.network(images), labels))


class Evaluator:
    """Scores a network on splits; statistics of normalisation layers are used, not changed.

    Args:
        network: maps images to logits.
        comm: the ranks of the job; each takes its share of the batches, and all get the score of the whole.
    """

    def __init__(self, network: nn.Cell, comm: Communicator = SINGLE_PROCESS) -> None:
        self.network, self.comm = network, comm
        self.forward = Evaluation(network)

    def __call__(self, split: Dataset) -> Score:
        training = self.network.training
        self.forward.set_train(False)
        loss = right = 0.0
        size = batch_size(self.network, split.shape)
        mine = range(0, len(split), size)[self.comm.rank :: self.comm.world_size]
        for images, labels in split.batches(np.arange(first, min(first + size, len(split))) for first in mine):
            mean_loss, correct_here = self.forward(Tensor(images), Tensor(labels)).asnumpy()
            loss += float(mean_loss) * len(labels)
            right += float(correct_here)
        self.network.set_train(training)
        self.comm.barrier()
        loss, right = self.comm.all_sum(np.array([loss, right]))
        return Score(float(loss) / len(split), float(right) / len(split))


def batch_size(network: nn.Cell, shape: tuple[int, int, int]) -> int:
    """Samples of a batch: as many as are fast, and as fit into memory whatever computes convolutions.

    A function of network and image alone, so that scores do not depend on what else the machine does.
    """
    pixels = int(np.prod(shape))
    kernels = [parameter.size for parameter in network.trainable_params() if parameter.ndim == 4]
    return max(1, min(_PIXELS // pixels, _WEIGHTS // max(kernels, default=1)))
