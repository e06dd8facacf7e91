"""The training loop, to be read from top to bottom.

for each stage:                     one, or those of a method that has several
    for each epoch:                 samples and their order are functions of seed and epoch
        for each update:            windows of micro-batches, one step of the optimizer
            at a log point:         what was measured since the last one goes to MLflow
            now and then:           a checkpoint from which a killed job is resumed, here
        at an evaluation:           score, checkpoint, best so far, target; within an epoch too, if that is wanted
final evaluation, from the checkpoint on disk
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from mindspore import Parameter, nn

from msaccel.checkpoint.resume_file import ResumeState
from msaccel.checkpoint.state import by_name
from msaccel.data.dataset import DatasetSplits, EpochSamples
from msaccel.distributed.communicator import Communicator
from msaccel.step.batch_norm import RunningStatistics
from msaccel.step.stage import EvaluationWeights, SingleUpdate, Stage
from msaccel.step.update import Windows, sizes, windows_here
from msaccel.tracking import stopping
from msaccel.tracking.curves import Curves
from msaccel.tracking.mlflow_run import Run
from msaccel.tracking.progress_bar import ProgressBar
from msaccel.training.evaluation import Evaluations, Score
from msaccel.training.evaluation_weights import EvaluatedWeights
from msaccel.training.job_state import arrays_of, facts_of, load_arrays, load_facts
from msaccel.training.loader import Loader
from msaccel.training.log_points import log_point, note_skipped
from msaccel.training.metrics import MetricAccumulator
from msaccel.training.nonfinite import NonFinite
from msaccel.training.plan import Plan
from msaccel.training.progress import Counts, TimeLeft
from msaccel.training.resume_checkpoints import ResumeCheckpoints


@dataclass(kw_only=True)
class Training:
    """One job's training.

    Attributes:
        epoch_samples: what its epochs train on.
        comm: the processes of the job.
        statistics: of the network's batch normalisation, by rank.
        folder: where the first rank writes the last and the best checkpoint.
        resume_checkpoints: those from which the job is resumed.
        method_metrics: the fields of `Metrics` that the methods log, each with its name in MLflow.
        evaluation_weights: evaluated instead of the trained ones, or None.
        resume_state: the checkpoint to resume from, or None for a new job.
        counts: how far it has come.
        extra_forwards: forward passes, in samples of full size, beyond three for each sample so far.
    """

    plan: Plan
    data: DatasetSplits
    epoch_samples: EpochSamples
    network: nn.Cell
    stages: Sequence[Stage]
    comm: Communicator
    statistics: RunningStatistics
    run: Run
    bar: ProgressBar
    folder: Path
    resume_checkpoints: ResumeCheckpoints
    resume_state: ResumeState | None = None
    method_metrics: Mapping[str, str] = field(default_factory=dict)
    evaluation_weights: EvaluationWeights | None = None
    counts: Counts = field(default_factory=Counts)
    extra_forwards: float = 0.0
    curves: Curves = field(default_factory=Curves)

    def __post_init__(self) -> None:
        config = self.plan.config
        self.metrics = MetricAccumulator(self.data.train.targets)
        self.nonfinite = NonFinite(self.data.train, self.comm, self.folder, config.loss_scale.mode != "none")
        self.time_left = TimeLeft(self.plan, [self.share(epoch) for epoch in range(self.plan.epochs)])
        self._compiled: dict[tuple[int, tuple[int, ...]], set[tuple[int, int]]] = {}

    def train(self) -> Score:
        """Trains to the end of the budget, or to the target, and returns the final score on the test set."""
        if self.resume_state:
            load_facts(self, self.resume_state.facts)
        counts = self.counts
        self.evaluations, self.evaluated = Evaluations(self), EvaluatedWeights(self)
        for number, stage in enumerate(self.stages):
            if number < counts.stage:
                continue  # the stage was over when the checkpoint was written
            if self.resume_state and number == counts.stage:
                load_arrays(self, self.resume_state.arrays)
                self.resume_state = None  # as large as the job's whole state
                if self.has_ended():  # only its results had not been logged
                    return self.evaluations.final()
            else:
                self.begin(number)
            self.time_left.begin_stage(counts)
            for epoch in range(max(counts.epoch, self.first_epoch), self.first_epoch + stage.budget.epochs):
                counts.epoch = epoch
                with counts.clock.running():
                    self.one_epoch()
                    if self.metrics:
                        log_point(self)
                is_over, per_epoch = counts.updates == self.plan.total_updates, stage.budget.sampler.updates_per_epoch
                if not self.has_ended() and (is_over or per_epoch in self.plan.evaluations(epoch, per_epoch)):
                    self.evaluate()
                if self.has_ended():
                    return self.evaluations.final()
        return self.evaluations.final()

    def evaluate(self) -> None:
        per_epoch = self.stage.budget.sampler.updates_per_epoch
        epochs = self.counts.epoch + (self.counts.updates - self.updates_before_epoch()) / per_epoch
        with self.stage.update.averaged(), self.evaluated.in_place(), self.time_left.evaluating():
            self.evaluations(epochs, self.parameters())

    def has_ended(self) -> bool:
        """Whether the job ends here and before its budget, at its target."""
        return self.plan.config.train.stop_at_target and self.counts.reached_target

    @property
    def stage(self) -> Stage:
        return self.stages[self.counts.stage]

    def begin(self, number: int) -> None:
        self.counts.stage, self.counts.updates_before = number, self.counts.updates
        with self.counts.clock.running():
            begun = self.stage.begin()
        self.run.metrics(self.counts.updates, begun)

    def one_epoch(self) -> None:
        """Trains what is left of the epoch: all of it, unless the job was resumed within it."""
        budget, counts = self.stage.budget, self.counts
        self.resume_checkpoints.watch(counts.updates)
        samples, share = self.epoch_samples.of(counts.epoch), self.share(counts.epoch)
        per_epoch, before = budget.sampler.updates_per_epoch, self.updates_before_epoch()
        evaluated = self.plan.evaluations(counts.epoch, per_epoch) - {per_epoch}  # its end is left to the caller
        loader = Loader(samples, self.comm)
        with closing(loader.epoch(budget.sampler, counts.epoch, counts.updates - before)) as updates:
            while (done := counts.updates - counts.updates_before) < budget.updates:
                with counts.waiting.running():
                    windows = next(updates, None)
                if windows is None:
                    break
                update = self.stage.update.at(counts.updates, self.plan.total_updates)
                self.compile(update, windows, samples.shape)
                counts.rate = self.plan.rate(budget, done)
                extra = -self.stage.update.extra_forwards
                signals = update(windows, counts.rate)
                self.metrics.add(signals)
                extra += self.stage.update.extra_forwards
                counts.updates += 1
                stopping.listen()
                used = sum(count for window in windows for count in sizes(window))
                counts.samples += used
                counts.exchanged += signals.exchanged
                self.extra_forwards += share * (3 * used + extra) - 3 * used
                self.stage.after(done + 1)
                if self.evaluation_weights:
                    self.evaluation_weights.after_update()
                if counts.updates % self.plan.log_every == 0:
                    log_point(self)
                in_epoch = counts.updates - before
                if in_epoch in evaluated and counts.updates < self.plan.total_updates:
                    if self.metrics:
                        log_point(self)
                    with counts.clock.paused():
                        self.evaluate()
                    if self.has_ended():
                        break
                if self.resume_checkpoints.due(counts.updates):
                    self.keep()

    @property
    def first_epoch(self) -> int:
        """Of the current stage."""
        return sum(stage.budget.epochs for stage in self.stages[: self.counts.stage])

    def updates_before_epoch(self) -> int:
        """The job's updates before the current epoch."""
        epochs = self.counts.epoch - self.first_epoch
        return self.counts.updates_before + epochs * self.stage.budget.sampler.updates_per_epoch

    def share(self, epoch: int) -> float:
        """The pixels of an epoch's samples, as a share of those at full size; 1 for texts."""
        return math.prod(self.epoch_samples.of(epoch).shape) / math.prod(self.data.train.shape)

    def compile(self, update: SingleUpdate, windows: Windows, shape: tuple[int, ...]) -> None:
        """Builds the graphs for new sizes of micro-batches of samples of a shape, with the clock paused.

        All ranks pause together, though a size may be new to one of them alone.
        """
        counts, compiled = self.counts, self._compiled.setdefault((id(update), shape), set())
        real = self.comm.world_size > 1
        every = {(rank if real else 0, count) for rank, window in enumerate(windows) for count in sizes(window)}
        new = every - compiled
        if not new:
            return
        self.metrics.fetch()  # a GPU may still have updates to compute, whose time counts
        with counts.clock.paused(), counts.compiling.running():
            for rank, window in windows_here(windows).items():
                for images, labels in window:
                    size = (rank if real else 0, len(labels))
                    if size in new:
                        update.compile(images, labels)
                        new.discard(size)
                if real and not window and not compiled:  # the rank takes part in the exchange nevertheless
                    update.compile(*self.epoch_samples.of(counts.epoch).batch(np.zeros(1, np.int64)))
            self.comm.barrier()
        compiled |= every

    def keep(self) -> None:
        """Writes a checkpoint from which the job can be resumed after this update as if it had never stopped."""
        updates = self.counts.updates
        if note_skipped(self):
            log_point(self)  # which ends the job: the checkpoints it keeps are of earlier updates
        with self.counts.clock.paused():
            self.resume_checkpoints.write(updates, arrays_of(self), facts_of(self))
            self.comm.barrier()

    def parameters(self) -> list[Parameter]:
        """Everything the next update depends on."""
        return list({**by_name(self.network.get_parameters()), **self.stage.update.state_dict()}.values())
