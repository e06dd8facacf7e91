"""Evaluation on every sample of a set, and what a job's evaluations leave: the last checkpoint and the best one."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from msaccel.checkpoint import weights
from msaccel.checkpoint.state import values_restored
from msaccel.data.dataset import Dataset
from msaccel.devices.machine import peak_mb
from msaccel.distributed.communicator import SINGLE_PROCESS, Communicator
from msaccel.distributed.sync import broadcast_parameters, must_agree
from msaccel.files import atomic_write_text
from msaccel.kernels import CrossEntropy
from msaccel.training import generate
from msaccel.training.misclassified import Mistakes
from msaccel.training.tta import with_tta

if TYPE_CHECKING:
    from msaccel.training.loop import Training

_log = logging.getLogger(__name__)

_PIXELS = 1_000_000  # in a batch's images: then the unfolded columns of LeNet's first layer take 80 MB
_VALUES = 1_000_000  # of a layer, over a batch of texts
_WEIGHTS = 30_000_000  # of a convolution, over a batch: unfolding repeats them for each sample, up to 120 MB a layer
LAST, BEST = "last.safetensors", "best.safetensors"


@dataclass(frozen=True)
class Score:
    """Mean loss per label and the share of labels predicted correctly (0 to 1)."""

    loss: float
    accuracy: float


class ForwardPass(nn.Cell):
    """Forward pass alone. Inputs as in training; outputs [mean loss, correctly predicted] and the logits."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.loss = network, CrossEntropy()

    def construct(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(images)
        return ops.stack(self.loss(logits, labels)), logits.astype(ms.float32)


class Evaluator:
    """Scores a network on splits; statistics of normalisation layers are used, not changed.

    Args:
        network: maps images to logits.
        comm: the ranks of the job; each takes its share of the batches, and all get the score of the whole.
        tta: test-time augmentation, `train.tta`.
    """

    def __init__(self, network: nn.Cell, comm: Communicator = SINGLE_PROCESS, tta: str = "none") -> None:
        self.network, self.comm = network, comm
        self.forward = ForwardPass(with_tta(network, tta))

    def __call__(self, split: Dataset, mistakes: Mistakes | None = None) -> Score:
        """Scores the network on a split.

        Args:
            mistakes: are counted here, over all ranks.
        """
        training = self.network.training
        self.forward.set_train(False)
        loss = right = 0.0
        size = batch_size(self.network, split.shape)
        mine = range(0, len(split), size)[self.comm.rank :: self.comm.world_size]
        numbers = [np.arange(first, min(first + size, len(split))) for first in mine]
        for samples, (images, labels) in zip(numbers, split.batches(numbers), strict=True):
            measured, logits = self.forward(Tensor(images), Tensor(labels))
            mean_loss, correct_here = measured.asnumpy()
            loss += float(mean_loss) * len(labels)
            right += float(correct_here)
            if mistakes:
                mistakes.add(samples, logits.asnumpy(), labels)
        self.network.set_train(training)
        self.comm.barrier()
        loss, right = self.comm.all_sum(np.array([loss, right]))
        if mistakes:
            mistakes.gather(self.comm)
        return Score(float(loss) / len(split), float(right) / (len(split) * split.targets))


def batch_size(network: nn.Cell, shape: tuple[int, ...]) -> int:
    """The number of samples in a batch: enough to be fast, few enough for memory with any backend of convolutions.

    A function of network and sample alone, so that scores do not depend on what else the machine does.
    """
    if len(shape) == 1:  # a text: each layer makes a vector for every character
        widest = max(max(parameter.shape) for parameter in network.trainable_params())
        return max(1, _VALUES // (shape[0] * widest))
    pixels = int(np.prod(shape))
    kernels = [parameter.size for parameter in network.trainable_params() if parameter.ndim == 4]
    return max(1, min(_PIXELS // pixels, _WEIGHTS // max(kernels, default=1)))


class Evaluations:
    """The evaluations of a training; its counts note the best score and whether the target was reached."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.evaluator = Evaluator(training.network, training.comm, training.plan.config.train.tta)
        self._stale: OSError | None = None  # why the last checkpoint is not of the last evaluation

    def __call__(self, epochs: float, state: Sequence[Parameter]) -> None:
        """Scores, writes the last checkpoint, keeps the best: by the validation split, or the test set without one.

        Args:
            epochs: how many the job has done.
            state: what the checkpoint holds.
        """
        training, counts = self.training, self.training.counts
        must_agree(training.comm, training.network.trainable_params(), f"after update {counts.updates}")
        with training.statistics.averaged():
            scores = {"eval": self.evaluator(training.data.test)}
            if training.data.validation:
                scores["val"] = self.evaluator(training.data.validation)
            peak = float(training.comm.all_gather(np.array([peak_mb()])).max())
            counts.peak_mb = max(counts.peak_mb, peak)  # a resumed job had another process
            was_saved = not training.comm.is_main or self._save(epochs, state)
        self._report(epochs, scores, was_saved)
        training.comm.barrier()

    def final(self) -> Score:
        """The final score, from the last checkpoint on disk; afterwards the network has its own weights again.

        The network's mistakes are written next to the checkpoint, or a sample text if it has learned a text.
        """
        training, counts = self.training, self.training.counts
        if self._stale:
            raise self._stale  # the target was reached by weights that could not be written
        with values_restored(training.network.get_parameters()):
            final = self._of_last_checkpoint()
        values = {"final/accuracy": final.accuracy, "final/loss": final.loss, "best/accuracy": counts.best_test}
        training.run.metrics(counts.updates, values)
        return final

    def _of_last_checkpoint(self) -> Score:
        """Loads the last checkpoint from disk into the network and scores it."""
        training = self.training
        parameters = list(training.network.get_parameters())
        if training.comm.is_main:
            weights.read(training.folder / LAST, parameters)
        broadcast_parameters(training.comm, parameters)
        classes = training.plan.config.model.classes or training.data.classes
        mistakes = None if training.data.vocabulary else Mistakes(classes)
        final = self.evaluator(training.data.test, mistakes)
        if training.comm.is_main:
            try:
                if mistakes:
                    mistakes.save(training.folder, training.data.test)
                else:
                    written = generate.generate(training.network, training.data, training.plan.config.seed)
                    atomic_write_text(training.folder / generate.FILE, written)
            except OSError as error:  # they are no result
                what = "mistakes of the final evaluation" if mistakes else "text of the trained network"
                _log.warning("the %s could not be written (%s).", what, error.strerror)
        return final

    def _save(self, epochs: float, state: Sequence[Parameter]) -> bool:
        """Writes the last checkpoint; False, with a warning, where it cannot be written before the job's end.

        Raises:
            OSError: it was the job's last chance to write it.
        """
        training, counts = self.training, self.training.counts
        updates, samples = counts.updates, counts.samples
        said = {"update": updates, "epoch": int(epochs), "samples": samples, "seed": training.plan.config.seed}
        try:
            weights.write(training.folder / LAST, state, said)
        except OSError as error:
            if updates == training.plan.total_updates:
                raise
            self._not_written(LAST, error)
            self._stale = error
            return False
        self._stale = None
        return True

    def _copied(self) -> bool:
        """Makes the last checkpoint the best; False, with a warning, where it cannot be written."""
        try:
            if self.training.comm.is_main:
                weights.copy(self.training.folder / LAST, self.training.folder / BEST)
        except OSError as error:
            self._not_written(BEST, error)
            return False
        return True

    def _not_written(self, name: str, error: OSError) -> None:
        _log.warning(
            "%s of update %d could not be written (%s); training goes on, and this evaluation cannot become the best "
            "one.",
            self.training.folder / name,
            self.training.counts.updates,
            error.strerror,
        )

    def _report(self, epochs: float, scores: dict[str, Score], was_saved: bool) -> None:
        """Logs an evaluation, and keeps the checkpoint if it was saved and is the best."""
        training = self.training
        counts, target, test = training.counts, training.plan.config.train.target_accuracy, scores["eval"]
        chosen_by = scores.get("val", test)
        for name, score in scores.items():
            values = {f"{name}/loss": score.loss, f"{name}/accuracy": score.accuracy}
            training.curves.add(counts.updates, values)
            if training.data.vocabulary:
                values[f"{name}/bits_per_char"] = score.loss / math.log(2)
            training.run.metrics(counts.updates, values)
        training.run.metrics(
            counts.updates, {"memory/peak_mb": counts.peak_mb, "time/compile_s": counts.compiling.seconds}
        )
        if chosen_by.accuracy > counts.best and was_saved and self._copied():
            counts.best, counts.best_test = chosen_by.accuracy, test.accuracy
        if target and not counts.reached_target and chosen_by.accuracy >= target:
            counts.reached_target = True
            reached = {"time/to_target_s": counts.clock.seconds, "samples/to_target": counts.samples}
            training.run.metrics(counts.updates, reached)
        said = ", ".join(f"{name} accuracy {s.accuracy:.2%} loss {s.loss:.4f}" for name, s in scores.items())
        speed = "" if training.plan.config.device.simulated else f", {counts.speed:,.0f} samples/s"
        _log.info("%s: epoch %.6g/%d: %s%s", training.bar.name, epochs, training.plan.epochs, said, speed)
