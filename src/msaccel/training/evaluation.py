"""The evaluations of a job, and what they leave: the last checkpoint, the best one, and a score from the disk."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mindspore import Parameter, nn

from msaccel.checkpoint import weights
from msaccel.data import DatasetSplits
from msaccel.distributed.communicator import Communicator
from msaccel.distributed.sync import must_agree, share
from msaccel.step.batch_norm import RunningStatistics
from msaccel.tracking.curves import Curves
from msaccel.tracking.run import Run
from msaccel.training.evaluator import Evaluator, Score
from msaccel.training.plan import Plan
from msaccel.training.progress import Counts

LAST, BEST = "last.safetensors", "best.safetensors"


@dataclass
class Evaluations:
    """Those of one job.

    Attributes:
        comm: its processes; the first one writes.
        folder: where the checkpoints lie.
        counts: of the job; the best score and whether the target was reached are noted there.
    """

    plan: Plan
    data: DatasetSplits
    network: nn.Cell
    comm: Communicator
    statistics: RunningStatistics
    run: Run
    curves: Curves
    folder: Path
    counts: Counts

    def __post_init__(self) -> None:
        self.evaluator = Evaluator(self.network, self.comm)
        self._stale: OSError | None = None  # why the last checkpoint is not of the last evaluation

    def __call__(self, epochs: int, state: Sequence[Parameter]) -> None:
        """Scores, writes the last checkpoint, keeps the best: by the validation split, or the test set without one.

        Args:
            epochs: of the job that are done.
            state: what the checkpoint holds.
        """
        must_agree(self.comm, self.network.trainable_params(), f"after update {self.counts.updates}")
        with self.statistics.averaged():
            scores = {"eval": self.evaluator(self.data.test)}
            if self.data.validation:
                scores["val"] = self.evaluator(self.data.validation)
            peak = float(self.comm.all_gather(np.array([peak_mb()])).max())
            saved = not self.comm.is_main or self._save(epochs, state)
        self._report(epochs, scores, peak, saved)
        self.comm.barrier()

    def final(self) -> Score:
        """The final score, from the last checkpoint as it stands on disk."""
        parameters = list(self.network.get_parameters())
        if self._stale:
            raise self._stale  # the target was reached where nothing could be written
        if self.comm.is_main:
            weights.read(self.folder / LAST, parameters)
        share(self.comm, parameters)
        final = self.evaluator(self.data.test)
        values = {"final/accuracy": final.accuracy, "final/loss": final.loss, "best/accuracy": self.counts.best_test}
        self.run.metrics(self.counts.updates, values)
        return final

    def _save(self, epochs: int, state: Sequence[Parameter]) -> bool:
        """Writes the last checkpoint; False, with a warning, where it cannot be written before the job's end.

        Raises:
            OSError: there will be no other one.
        """
        updates, samples = self.counts.updates, self.counts.samples
        said = {"update": updates, "epoch": epochs, "samples": samples, "seed": self.plan.config.seed}
        try:
            weights.write(self.folder / LAST, state, said)
        except OSError as error:
            if updates == self.plan.total_updates:
                raise
            self._not_written(LAST, error)
            self._stale = error
            return False
        self._stale = None
        return True

    def _copied(self) -> bool:
        """Makes the last checkpoint the best; False, with a warning, where it cannot be written."""
        try:
            if self.comm.is_main:
                weights.copy(self.folder / LAST, self.folder / BEST)
        except OSError as error:
            self._not_written(BEST, error)
            return False
        return True

    def _not_written(self, name: str, error: OSError) -> None:
        print(
            f"{self.folder / name} of update {self.counts.updates} could not be written ({error.strerror}); training "
            "goes on, and this evaluation cannot become the best one.",
            file=sys.stderr,
        )

    def _report(self, epochs: int, scores: dict[str, Score], peak: float, saved: bool) -> None:
        """Logs an evaluation, and keeps the checkpoint if it was saved and is the best."""
        counts, target, test = self.counts, self.plan.config.train.target_accuracy, scores["eval"]
        chosen_by = scores.get("val", test)
        for name, score in scores.items():
            values = {f"{name}/loss": score.loss, f"{name}/accuracy": score.accuracy}
            self.curves.add(counts.updates, values)
            self.run.metrics(counts.updates, values)
        self.run.metrics(counts.updates, {"memory/peak_mb": peak, "time/compile_s": counts.compiling.seconds})
        if chosen_by.accuracy > counts.best and saved and self._copied():
            counts.best, counts.best_test = chosen_by.accuracy, test.accuracy
        if target and not counts.reached_target and chosen_by.accuracy >= target:
            counts.reached_target = True
            self.run.metrics(counts.updates, {"time/to_target_s": counts.clock.seconds})
        said = ", ".join(f"{name} accuracy {s.accuracy:.2%} loss {s.loss:.4f}" for name, s in scores.items())
        if self.comm.is_main:
            print(f"  epoch {epochs}/{self.plan.epochs}: {said}, {counts.speed:,.0f} samples/s", flush=True)


def peak_mb() -> float:
    """The largest resident memory of this process so far, in MB (10⁶ bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
