"""Weights that are evaluated instead of the trained ones, with running statistics of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from itertools import islice

from mindspore import Tensor, nn

from msaccel.data.sampler import Sampler
from msaccel.step.batch_norm import RunningStatistics
from msaccel.step.stage import EvaluationWeights
from msaccel.step.update import windows_here
from msaccel.training.evaluation import ForwardPass
from msaccel.training.loader import Loader

_BATCHES = 50  # of all ranks together, for measuring running statistics anew; rounded up to whole updates


class EvaluatedWeights:
    """What an evaluation puts into the network.

    Args:
        weights: a method's own; None: the trained ones.
        loader, sampler: of the training samples. The statistics for a method's weights are measured on the first ones.
    """

    def __init__(
        self,
        weights: EvaluationWeights | None,
        network: nn.Cell,
        statistics: RunningStatistics,
        loader: Loader,
        sampler: Sampler,
    ) -> None:
        self.weights, self.statistics, self.loader, self.sampler = weights, statistics, loader, sampler
        self.forward = ForwardPass(network)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside the block the network has these weights, afterwards the trained ones again."""
        with self.weights.in_place() if self.weights else nullcontext(False) as differ, self._statistics(differ):
            yield

    def _statistics(self, differ: bool) -> AbstractContextManager[None]:
        if not differ:
            return nullcontext()
        self.forward.set_train()
        return self.statistics.measured_anew(self._batches(), self.forward)

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's micro-batches of the job's first updates."""
        first = -(-_BATCHES // (self.sampler.ranks * self.sampler.steps))
        with closing(self.loader.epoch(self.sampler, 0)) as updates:
            for windows in islice(updates, first):
                for window in windows_here(windows).values():
                    for images, labels in window:
                        yield Tensor(images), Tensor(labels)
