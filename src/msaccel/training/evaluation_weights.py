"""Weights that are evaluated instead of the trained ones, with running statistics of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from mindspore import Tensor

from msaccel.step.update import windows_here
from msaccel.training.evaluation import ForwardPass
from msaccel.training.loader import Loader

if TYPE_CHECKING:
    from msaccel.training.loop import Training

_BATCHES = 50  # of all ranks together, for measuring running statistics anew; rounded up to whole updates


class EvaluatedWeights:
    """What an evaluation puts into the network: a method's own weights, or the trained ones.

    The running statistics for a method's weights are measured on the first training samples.
    """

    def __init__(self, training: Training) -> None:
        self.training, self.forward = training, ForwardPass(training.network)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside the block the network has these weights, afterwards the trained ones again."""
        weights = self.training.evaluation_weights
        with ExitStack() as stack:
            if weights and stack.enter_context(weights.in_place()):
                self.forward.set_train()
                stack.enter_context(self.training.statistics.measured_anew(self._batches(), self.forward))
            yield

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's micro-batches of the job's first updates."""
        sampler = self.training.stages[0].budget.sampler
        first = -(-_BATCHES // (sampler.ranks * sampler.steps))
        with closing(Loader(self.training.data.train, self.training.comm).epoch(sampler, 0)) as updates:
            for windows in islice(updates, first):
                for window in windows_here(windows).values():
                    for images, labels in window:
                        yield Tensor(images), Tensor(labels)
