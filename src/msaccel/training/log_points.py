"""What a training logs: the metrics since its last log point, and the samples of updates that were skipped."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msaccel.data.sampler import UpdateIndices
from msaccel.tracking.progress_bar import LogPoint
from msaccel.training.metrics import Metrics

if TYPE_CHECKING:
    from msaccel.training.loop import Training


def log_point(training: Training) -> None:
    """Fetches what was measured since the last log point with the clock running, and logs it with it paused."""
    counts, first = training.counts, _first(training)
    note_skipped(training)
    metrics = training.metrics.read(training.comm)
    _count_skipped(training, metrics)
    with counts.clock.paused():
        own = {"train/loss": metrics.loss, "train/accuracy": metrics.accuracy}
        training.curves.add(counts.updates, own)
        training.run.metrics(counts.updates, own | _of_every_job(training, metrics) | _of_methods(training, metrics))
        training.bar.show(
            LogPoint(
                stage=counts.stage + 1,
                stages=len(training.stages),
                epoch=counts.epoch + 1,
                epochs=training.plan.epochs,
                update=counts.updates,
                updates=training.plan.total_updates,
                loss=metrics.loss,
                accuracy=metrics.accuracy,
                samples_per_sec=None if training.plan.config.device.simulated else counts.speed,
                seconds_left=training.time_left.seconds(counts),
            )
        )
        training.comm.barrier()  # also before the job ends here: a rank's last messages would be lost with it
        training.nonfinite.stop(metrics, _limit(training), first, counts.epoch + 1)


def note_skipped(training: Training) -> bool:
    """Lists the samples of updates that should have been applied and were not; returns whether one ends the job."""
    skips = training.metrics.skips()
    if not skips:
        return False

    def samples_of(update: int) -> UpdateIndices:
        """The samples of an update of the current epoch, counted from the job's first, 1."""
        sampler = training.stage.budget.sampler.epoch(training.counts.epoch)
        return next(islice(sampler, update - 1 - training.updates_before_epoch(), None))

    with training.counts.clock.paused():
        epoch = training.counts.epoch + 1
        return training.nonfinite.note(skips, _limit(training), _first(training), epoch, samples_of)


def _first(training: Training) -> int:
    """The number of the first update since the last log point."""
    return training.counts.updates - len(training.metrics) + 1


def _limit(training: Training) -> int:
    """How many updates in a row may be skipped."""
    return training.stage.update.loss_scaler.policy.limit


def _of_every_job(training: Training, metrics: Metrics) -> dict[str, float]:
    counts = training.counts
    values = {
        "lr": counts.rate,
        "grad/norm": metrics.norm,
        "epoch": counts.samples / training.plan.samples,
        "throughput/samples_per_sec": counts.speed,
        "time/train_s": counts.clock.seconds,
        "time/input_s": counts.waiting.seconds,
        "cost/forward_equivalents": 3 * counts.samples + training.extra_forwards,
    }
    if training.plan.config.device.ranks > 1:
        values["comm/bytes"] = counts.exchanged
    if training.data.vocabulary:
        values["throughput/tokens_per_sec"] = counts.speed * training.data.train.targets
    return values


def _count_skipped(training: Training, metrics: Metrics) -> None:
    # Those after the one that ends the job are not applied either, but not because of their own samples.
    after_the_end = max(0, [skip.consecutive_skips for skip in metrics.skips].count(_limit(training)) - 1)
    training.counts.refused += len(metrics.skips) - after_the_end


def _of_methods(training: Training, metrics: Metrics) -> dict[str, float]:
    """The metrics that only some settings produce."""
    counts, values = training.counts, {name: getattr(metrics, key) for key, name in training.method_metrics.items()}
    if training.plan.config.loss_scale.mode != "none":
        values |= {"loss_scale/value": metrics.loss_scale, "loss_scale/overflows": counts.refused}
    elif metrics.skips:
        values["nonfinite/updates"] = counts.refused
    return {**training.epoch_samples.report(counts.epoch), **training.stage.update.report(), **values}
