"""The training loop, to be read from top to bottom.

for each stage:                     one, or two with dimension reduction
    for each epoch:                 the order of samples is a function of seed and epoch
        for each update:            windows of micro-batches, one step of the optimizer
            at a log point:         what was measured since the last one goes to MLflow
            now and then:           a checkpoint from which a killed job is resumed, here
        at an evaluation:           score, checkpoint, best so far, target
final evaluation, from the checkpoint on disk
"""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Parameter, nn

from msaccel import checkpoint
from msaccel.accel import filling
from msaccel.clock import Clock
from msaccel.data import Data
from msaccel.devices.ranks import Ranks
from msaccel.devices.weights import must_agree, share
from msaccel.errors import CheckpointError, TrainingError
from msaccel.evaluate import Evaluator, Score
from msaccel.feed import Feed
from msaccel.nonfinite import FILE, NonFinite
from msaccel.plan import Plan
from msaccel.resuming.files import Saved
from msaccel.resuming.keeper import Keeper
from msaccel.running_statistics import RunningStatistics
from msaccel.stage import Stage
from msaccel.state import State, assign, below, under, values
from msaccel.tracking.curves import Curves
from msaccel.tracking.meters import Meter, Reading
from msaccel.tracking.progress import Bar
from msaccel.tracking.run import Run
from msaccel.update import Windows, sizes, windows_here

LAST, BEST = "last.safetensors", "best.safetensors"
# Attributes of `Training` that a resumed job goes on from, with their types.
COUNTERS: dict[str, type] = {
    "number": int, "epoch": int, "updates": int, "updates_before": int, "samples": int, "refused": int,
    "best": float, "best_test": float, "reached_target": bool, "rate": float,
}  # fmt: skip
CLOCKS = ("clock", "compiling", "waiting")


@dataclass
class Training:
    """One job's training: its parts, and what has been counted so far.

    Attributes:
        clock: training; `compiling` runs while it stands, `waiting` is its part spent on the next samples.
        together: the processes of the job.
        statistics: of the network's batch normalisation, by rank.
        folder: where the first rank writes the last and the best checkpoint.
        keeper: of the checkpoints from which a job is resumed.
        saved: the one to go on from, or None at a job's beginning.
        number, epoch: the stage and the epoch of the job that are under way, counted from 0.
    """

    plan: Plan
    data: Data
    network: nn.Cell
    stages: Sequence[Stage]
    together: Ranks
    statistics: RunningStatistics
    run: Run
    bar: Bar
    folder: Path
    keeper: Keeper
    saved: Saved | None = None
    clock: Clock = field(default_factory=Clock)
    compiling: Clock = field(default_factory=Clock)
    waiting: Clock = field(default_factory=Clock)
    curves: Curves = field(default_factory=Curves)
    number: int = 0
    epoch: int = 0
    updates: int = 0
    updates_before: int = 0
    samples: int = 0
    refused: int = 0
    best: float = -math.inf
    best_test: float = math.nan
    reached_target: bool = False
    rate: float = math.nan

    def __post_init__(self) -> None:
        self.evaluator = Evaluator(self.network, self.together)
        self.feed = Feed(self.data.train, self.together)
        self.meter = Meter()
        self.nonfinite = NonFinite(self.data.train, self.together, self.folder)
        self.stale: OSError | None = None  # why the last checkpoint is not of the last evaluation
        self._compiled: dict[int, set[int]] = {}

    def train(self) -> Score:
        """Trains to the end of the budget, or to the target, and returns the final score on the test set."""
        train = self.plan.config.train
        if self.saved:
            self.recount(self.saved.facts)
            self.nonfinite.again(self.updates)
        end = 0
        for number, stage in enumerate(self.stages):
            self.first_epoch, end = end, end + stage.leg.epochs
            if number < self.number:
                continue  # it was over when the checkpoint was written
            if self.saved and number == self.number:
                self.take_up(self.saved.arrays)
            else:
                self.begin(number)
            for epoch in range(max(self.epoch, self.first_epoch), end):
                self.epoch = epoch
                with self.clock.running():
                    self.one_epoch()
                    if self.meter:
                        self.log_point()
                if self.updates == self.plan.total_updates or (epoch + 1) % train.eval_every == 0:
                    self.evaluate(epoch + 1)
                if train.stop_at_target and self.reached_target:
                    return self.finish()
        return self.finish()

    @property
    def stage(self) -> Stage:
        return self.stages[self.number]

    def begin(self, number: int) -> None:
        self.number, self.updates_before = number, self.updates
        with self.clock.running():
            begun = self.stage.begin()
        self.run.metrics(self.updates, begun)

    def one_epoch(self) -> None:
        """What is left of the epoch: all of it, unless the job was resumed inside."""
        leg, update = self.stage.leg, self.stage.update
        before = (self.epoch - self.first_epoch) * leg.order.updates_per_epoch
        self.keeper.watch(self.updates)
        with closing(self.feed.epoch(leg.order, self.epoch, self.updates - self.updates_before - before)) as updates:
            while (done := self.updates - self.updates_before) < leg.updates:
                with self.waiting.running():
                    windows = next(updates, None)
                if windows is None:
                    break
                self.compile(windows)
                self.rate = self.plan.rate(leg, done)
                self.meter.add(update(windows, self.rate))
                self.updates += 1
                self.samples += sum(count for window in windows for count in sizes(window))
                self.stage.after(done + 1)
                if self.updates % self.plan.log_every == 0:
                    self.log_point()
                if self.keeper.due(self.updates):
                    self.keep()

    def compile(self, windows: Windows) -> None:
        """Builds the graphs for sizes of micro-batches that no rank has had yet, with the clock paused."""
        update = self.stage.update
        new = {count for window in windows for count in sizes(window)} - self._compiled.setdefault(id(update), set())
        if not new:
            return
        with self.clock.paused(), self.compiling.running():
            for images, labels in (pair for window in windows_here(windows).values() for pair in window):
                if len(labels) in new:
                    update.compile(images, labels)
                    new.discard(len(labels))
            self.together.wait()
        self._compiled[id(update)] |= {count for window in windows for count in sizes(window)}

    def log_point(self) -> None:
        """Fetches what was measured since the last log point with the clock running, and logs it without."""
        first = self.updates - len(self.meter) + 1
        self.note_refused(first)
        reading = self.meter.read(self.together)
        with self.clock.paused():
            speed = self.samples / self.clock.seconds
            extra = sum(stage.update.extra_forwards for stage in self.stages)
            values = {"train/loss": reading.loss, "train/accuracy": reading.accuracy}
            self.curves.add(self.updates, values)
            values |= {
                "lr": self.rate,
                "grad/norm": reading.norm,
                "epoch": self.samples / self.plan.samples,
                "throughput/samples_per_sec": speed,
                "time/train_s": self.clock.seconds,
                "time/input_s": self.waiting.seconds,
                "cost/forward_equivalents": 3 * self.samples + extra,
            }
            self.run.metrics(self.updates, values | self.methods_metrics(reading))
            self.bar.show(self.updates, reading.loss, reading.accuracy, speed)
            self.stop_if_refused(reading, first)
            self.together.wait()

    def methods_metrics(self, reading: Reading) -> dict[str, float]:
        """What only some settings measure."""
        config, values = self.plan.config, self.stage.update.report()
        limit = self.stage.update.guard.policy.limit
        after_the_end = max(0, reading.in_a_row.count(limit) - 1)  # not applied either, but through no fault of theirs
        self.refused += len(reading.refused) - after_the_end
        if "adasum" in config.accel:
            values["grad/norm_max"] = reading.norm_max
        if filling("clip", config.accel):
            values["grad/clipped"] = reading.clipped
        if config.loss_scale.mode != "none":
            values |= {"loss_scale/value": reading.loss_scale, "loss_scale/overflows": self.refused}
        elif reading.refused:
            values["nonfinite/updates"] = self.refused
        return values

    def note_refused(self, first: int) -> bool:
        """Lists the samples of updates that should have been applied and were not; whether one of them ends the job.

        Args:
            first: the number of the first update since the last log point.
        """
        limit = self.stage.update.guard.policy.limit
        order, scaled = self.stage.leg.order, self.plan.config.loss_scale.mode != "none"
        for refusal in self.meter.refusals():
            last = refusal.in_a_row >= limit
            if (last or not scaled) and not self.nonfinite.full:  # with a scale, refusals are how it finds its size
                update = first + refusal.place
                before = self.updates_before + (self.epoch - self.first_epoch) * order.updates_per_epoch
                with self.clock.paused():
                    samples = next(islice(order.epoch(self.epoch), update - 1 - before, None))
                    self.nonfinite.note(update, self.epoch + 1, samples, refusal.bad)
            if last:
                return True  # of what came after it nothing would have been applied
        return False

    def stop_if_refused(self, reading: Reading, first: int) -> None:
        """Ends the job where the guard has stopped applying updates; `first` is the number of the first one read."""
        limit = self.stage.update.guard.policy.limit
        for place, count in zip(reading.refused, reading.in_a_row, strict=True):
            if count < limit:
                continue
            where = f"update {first + place} (epoch {self.epoch + 1})"
            if self.plan.config.loss_scale.mode == "none":
                raise TrainingError(
                    f"the gradient of {where} is not finite, and nothing was applied since; look at its samples, "
                    f"listed in {FILE}, lower optimizer.lr, or write train.on_nonfinite=skip to go on."
                )
            raise TrainingError(
                f"the gradients of {limit} updates in a row, up to {where}, were not finite even with the loss scale "
                f"down to {reading.loss_scale:g}; lower optimizer.lr or loss_scale.init."
            )

    def evaluate(self, epochs: int) -> None:
        """Scores, writes the last checkpoint, keeps the best: by the validation split, or the test set without one."""
        must_agree(self.together, self.network.trainable_params(), f"after update {self.updates}")
        with self.statistics.averaged():
            scores = {"eval": self.evaluator(self.data.test)}
            if self.data.validation:
                scores["val"] = self.evaluator(self.data.validation)
            peak = float(self.together.gather(np.array([peak_mb()])).max())
            saved = not self.together.first or self.save(epochs)
        self.report(epochs, scores, peak, saved)
        self.together.wait()

    def save(self, epochs: int) -> bool:
        """Writes the last checkpoint; False, with a warning, where it cannot be written before the job's end.

        Raises:
            OSError: there will be no other one.
        """
        seed = self.plan.config.seed
        counters = {"update": self.updates, "epoch": epochs, "samples": self.samples, "seed": seed}
        try:
            checkpoint.write(self.folder / LAST, self.state(), counters)
        except OSError as error:
            if self.updates == self.plan.total_updates:
                raise
            self.not_written(LAST, error)
            self.stale = error
            return False
        self.stale = None
        return True

    def not_written(self, name: str, error: OSError) -> None:
        print(
            f"{self.folder / name} of update {self.updates} could not be written ({error.strerror}); training goes on, "
            "and this evaluation cannot become the best one.",
            file=sys.stderr,
        )

    def report(self, epochs: int, scores: dict[str, Score], peak: float, saved: bool) -> None:
        """Logs an evaluation, and keeps the checkpoint if it was saved and is the best."""
        train, test = self.plan.config.train, scores["eval"]
        chosen_by = scores.get("val", test)
        for name, score in scores.items():
            values = {f"{name}/loss": score.loss, f"{name}/accuracy": score.accuracy}
            self.curves.add(self.updates, values)
            self.run.metrics(self.updates, values)
        self.run.metrics(self.updates, {"memory/peak_mb": peak, "time/compile_s": self.compiling.seconds})
        if chosen_by.accuracy > self.best and saved and self.copied():
            self.best, self.best_test = chosen_by.accuracy, test.accuracy
        if train.target_accuracy and not self.reached_target and chosen_by.accuracy >= train.target_accuracy:
            self.reached_target = True
            self.run.metrics(self.updates, {"time/to_target_s": self.clock.seconds})
        said = ", ".join(f"{name} accuracy {s.accuracy:.2%} loss {s.loss:.4f}" for name, s in scores.items())
        speed = self.samples / self.clock.seconds
        if self.together.first:
            print(f"  epoch {epochs}/{self.plan.epochs}: {said}, {speed:,.0f} samples/s", flush=True)

    def copied(self) -> bool:
        """Makes the last checkpoint the best; False, with a warning, where it cannot be written."""
        try:
            if self.together.first:
                checkpoint.copy(self.folder / LAST, self.folder / BEST)
        except OSError as error:
            self.not_written(BEST, error)
            return False
        return True

    def keep(self) -> None:
        """Writes the checkpoint from which the job can be resumed after this update, as if nothing had been."""
        if self.note_refused(self.updates - len(self.meter) + 1):
            self.log_point()  # which ends the job: the checkpoints that it has are of updates before
        with self.clock.paused():
            self.keeper.write(self.updates, self.everything(), self.counted())
            self.together.wait()

    def everything(self) -> State:
        """All arrays that a resumed job needs; those of the parts that are no arrays are in `counted`."""
        return {
            **below("update", values(self.state())),
            **below("statistics", self.statistics.state()),
            **below("meter", self.meter.state()),
            **below("curves", self.curves.state()),
        }

    def take_up(self, arrays: State) -> None:
        """Goes on inside the current stage, from what `everything` returned.

        Raises:
            CheckpointError: it is of another job.
        """
        self.stage.again(self.updates - self.updates_before)
        try:
            assign(self.network.get_parameters(), under("update", arrays))
            self.stage.update.restore(under("update", arrays))
            self.statistics.restore(under("statistics", arrays))
            self.meter.restore(under("meter", arrays))
            self.curves.restore(under("curves", arrays))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(
                f"the resume checkpoint is of another job ({error!r}); start the job anew."
            ) from error

    def counted(self) -> dict[str, Any]:
        """What has been counted so far, as JSON can hold it."""
        return {
            "counters": {name: getattr(self, name) for name in COUNTERS},
            "seconds": {name: getattr(self, name).seconds for name in CLOCKS},
            "extra_forwards": [stage.update.extra_forwards for stage in self.stages],
            "unflushed": self.run.unflushed(),
        }

    def recount(self, facts: dict[str, Any]) -> None:
        """Goes on counting from what `counted` returned.

        Raises:
            CheckpointError: it is something else, or beyond the end of this job.
        """
        try:
            for name, kind in COUNTERS.items():
                setattr(self, name, kind(facts["counters"][name]))
            for name in CLOCKS:
                setattr(self, name, Clock(float(facts["seconds"][name])))
            for stage, forwards in zip(self.stages, facts["extra_forwards"], strict=True):
                stage.update.extra_forwards = int(forwards)
            self.run.log_again(facts["unflushed"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise CheckpointError(f"the resume checkpoint is not understood ({error!r}); start anew.") from error
        if self.updates > self.plan.total_updates:
            raise CheckpointError(
                f"the job ends after {self.plan.total_updates} updates and has made {self.updates}; "
                "raise train.epochs or train.max_updates."
            )

    def finish(self) -> Score:
        """The final score, from the last checkpoint as it stands on disk."""
        parameters = list(self.network.get_parameters())
        if self.stale:
            raise self.stale  # the target was reached where nothing could be written
        if self.together.first:
            checkpoint.read(self.folder / LAST, parameters)
        share(self.together, parameters)
        final = self.evaluator(self.data.test)
        values = {"final/accuracy": final.accuracy, "final/loss": final.loss, "best/accuracy": self.best_test}
        self.run.metrics(self.updates, values)
        return final

    def state(self) -> list[Parameter]:
        """Everything the next update depends on."""
        parameters = [*self.network.get_parameters(), *self.stage.update.state()]
        return list({parameter.name: parameter for parameter in parameters}.values())


def peak_mb() -> float:
    """The largest resident memory of this process so far, in MB (10⁶ bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
