"""A gradient that is not finite: the job stops at that update, and lists the samples that were in it.

One sample of the training set holds a pixel that becomes NaN, or so large that the gradient leaves float32 while the
loss does not. Where it comes up in an epoch is worked out here from the permutation alone.
"""

import gc
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from msaccel.checkpoint import resume_file
from msaccel.data.dataset import DatasetSplits, InMemoryDataset
from msaccel.data.sampler import Sampler, UpdateIndices, permutation
from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.errors import TrainingError
from msaccel.training.metrics import Metrics, Skip
from msaccel.training.nonfinite import FILE, MAX_UPDATES, NonFinite
from tests.checkpoint.test_gather import on_ranks
from tests.conftest import assert_same_bits
from tests.training.test_resume_exact import AtUpdates, Client

graph_mode = pytest.mark.usefixtures("graph_mode")

JOB = (
    "model=mlp", "data=synthetic", "data.train_size=210", "data.test_size=20", "train.batch_size=8", "train.epochs=2",
    "tracking.every=4", "checkpoint.every_updates=1", "data.val_fraction=0.1",
)  # fmt: skip
TRAINED = 189  # samples, without the validation split
SPOILT = 100  # its number among these


@dataclass
class Trained:
    """A job in this process, with one sample of its training set spoilt."""

    overrides: tuple[str, ...]
    folder: Path
    composed: Callable
    pixel: float = np.nan

    def train(self) -> None:
        import mindspore as ms

        from msaccel.step.batch_norm import RunningStatistics
        from msaccel.tracking.progress_bar import ProgressBar
        from msaccel.training.builder import Builder, build_network
        from msaccel.training.job import load_data
        from msaccel.training.loop import Training
        from msaccel.training.plan import Plan
        from msaccel.training.resume_checkpoints import ResumeCheckpoints

        gc.freeze()
        config = self.composed(*JOB, *self.overrides)
        ms.set_seed(config.seed)
        self.data = self.spoilt(load_data(config))
        self.plan, network = Plan(config, len(self.data.train)), build_network(config)
        statistics = RunningStatistics(network, range(config.device.ranks), SINGLE_PROCESS)
        builder = Builder(network, config, SINGLE_PROCESS, statistics, self.folder)
        keeper = ResumeCheckpoints(config.checkpoint, self.folder, SINGLE_PROCESS, {})
        self.client = Client()
        run = AtUpdates(self.client, "")
        with ProgressBar("", silent=True) as bar:
            self.training = Training(
                plan=self.plan,
                data=self.data,
                epoch_samples=builder.epoch_samples(self.plan, self.data.train),
                network=network,
                stages=builder.stages(self.plan),
                comm=SINGLE_PROCESS,
                statistics=statistics,
                run=run,
                bar=bar,
                folder=self.folder,
                resume_checkpoints=keeper,
                method_metrics=builder.method_metrics(),
            )
            try:
                self.training.train()
            finally:
                run.flush()

    def spoilt(self, data: DatasetSplits) -> DatasetSplits:
        train = data.train
        assert isinstance(train, InMemoryDataset) and len(train) == TRAINED
        images, table = np.minimum(train.images, 254), train.table.copy()
        images[SPOILT, 0, 3, 5] = 255
        table[..., 255] = self.pixel
        return replace(data, train=replace(train, images=images, table=table))

    def listed(self) -> list[dict]:
        return json.loads((self.folder / FILE).read_text())

    def comes_up(self, epoch: int) -> tuple[int, int, int]:
        """In which update of an epoch the sample is used, by which rank and in which micro-batch; from 0."""
        order = self.plan.budgets[0].sampler
        place = permutation(0, epoch, TRAINED).tolist().index(SPOILT)
        update, within = divmod(place, 8 * order.steps * order.ranks)
        rank, within = divmod(within, 8 * order.steps)
        return update, rank, within // 8


TOPOLOGIES = {
    "whole": (),
    "accum": ("accel=accum", "accel.accum.steps=3"),
    "accum on ranks": ("device=cpu2x2", "device.simulate=always", "accel=accum", "accel.accum.steps=2"),
    "adasum": ("device=cpu2x2", "device.simulate=always", "accel=adasum"),
}


@graph_mode
@pytest.mark.parametrize("overrides", TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_the_job_stops_at_the_update_and_lists_the_samples(composed: Callable, tmp_path: Path, overrides) -> None:
    job = Trained(overrides, tmp_path, composed)
    with pytest.raises(TrainingError) as stopped:
        job.train()
    place, rank, micro_batch = job.comes_up(0)
    assert str(stopped.value).startswith(f"the gradient of update {place + 1} (epoch 1) is not finite")
    assert f"listed in {FILE}" in str(stopped.value)
    (listed,) = job.listed()
    assert (listed["update"], listed["epoch"], listed["loss_finite"]) == (place + 1, 1, False)
    (found,) = listed["of"]
    assert (found["rank"], found["micro_batch"]) == (rank, micro_batch)
    spoilt = int(job.data.train.positions[SPOILT])
    assert spoilt != SPOILT, "the numbers are those of the files, before the validation split"
    assert spoilt in found["samples"] and len(found["samples"]) <= 8
    assert [value for name, _, value in job.client.points if name == "nonfinite/updates"] == [1.0]
    (newest, *_) = resume_file.newest_first(tmp_path / "resume") or [None]
    assert (newest is None) == (place == 0), "no checkpoint is of an update that was not applied"
    if newest:
        saved = resume_file.read(newest)
        assert saved.update == place
        weights = {p.name: p.asnumpy() for p in job.training.network.trainable_params()}
        assert_same_bits(weights, {name: saved.arrays[f"update/{name}"] for name in weights})
        assert all(np.isfinite(value).all() for value in weights.values())


@graph_mode
def test_a_gradient_that_overflows_under_a_finite_loss_lists_the_whole_update(
    composed: Callable, tmp_path: Path
) -> None:
    job = Trained(TOPOLOGIES["accum"], tmp_path, composed, pixel=1e24)
    with pytest.raises(TrainingError):
        job.train()
    place, *_ = job.comes_up(0)
    (listed,) = job.listed()
    assert (listed["update"], listed["loss_finite"]) == (place + 1, True)
    assert [(each["rank"], each["micro_batch"]) for each in listed["of"]] == [(0, 0), (0, 1), (0, 2)]
    numbers = job.data.train.positions[permutation(0, 0, TRAINED)[24 * place : 24 * place + 24]]
    assert [sample for each in listed["of"] for sample in each["samples"]] == numbers.tolist()


@graph_mode
def test_skipped_updates_are_counted_and_listed(composed: Callable, tmp_path: Path) -> None:
    job = Trained(("train.on_nonfinite=skip",), tmp_path, composed)
    job.train()
    per_epoch = job.plan.budgets[0].sampler.updates_per_epoch
    expected = [epoch * per_epoch + job.comes_up(epoch)[0] + 1 for epoch in (0, 1)]
    assert [each["update"] for each in job.listed()] == expected
    spoilt = int(job.data.train.positions[SPOILT])
    assert all(spoilt in part["samples"] for each in job.listed() for part in each["of"])
    counted = [value for name, _, value in job.client.points if name == "nonfinite/updates"]
    assert counted == [1.0, 2.0]
    assert job.training.counts.updates == 2 * per_epoch


def note(found: NonFinite, update: int, epoch: int, order: UpdateIndices, bad: Sequence[int]) -> bool:
    """Tells of one refusal, which does not end the job."""
    return found.note([Skip(0, 1, tuple(bad))], 2, update, epoch, lambda asked: {update: order}[asked])


def split(count: int = 40) -> InMemoryDataset:
    return InMemoryDataset(np.zeros((count, 1, 2, 2), np.uint8), np.zeros(count, np.int32), np.zeros(256, np.float32))


def test_ranks_of_several_processes_make_one_list(tmp_path: Path) -> None:
    """Rank 1 has the bad loss; the last update is short, so that ranks have different numbers of micro-batches."""
    order = list(Sampler(20, 0, micro_batch=4, steps=2, ranks=2).epoch(0))

    def work(comm) -> NonFinite:
        found = NonFinite(split(), comm, tmp_path, scaled=False)
        note(found, 1, 1, order[0], [1] if comm.rank == 1 else [])
        note(found, 2, 1, order[1], [0] if comm.rank == 0 else [])
        found.resume_after(1)
        note(found, 7, 2, order[0], [])
        return found

    first, second = on_ranks(2, work)
    assert (first._updates, first._count) == (second._updates, second._count) == (2, 20)
    one, again = json.loads((tmp_path / FILE).read_text())
    assert one == {
        "update": 1, "epoch": 1, "loss_finite": False,
        "of": [{"rank": 1, "micro_batch": 1, "samples": order[0][1][1].tolist()}],
    }  # fmt: skip
    assert again["update"] == 7 and len(again["of"]) == 4, "what was noted after the checkpoint is made again"


def test_the_list_is_bounded(tmp_path: Path) -> None:
    listed = NonFinite(split(), SINGLE_PROCESS, tmp_path, scaled=False)
    update = next(Sampler(40, 0, micro_batch=4).epoch(0))
    while not listed.full:
        note(listed, listed._updates + 1, 1, update, [0])
    assert len(json.loads((tmp_path / FILE).read_text())) == MAX_UPDATES


def test_a_list_that_cannot_be_written_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / FILE).mkdir()
    update = next(Sampler(40, 0, micro_batch=4).epoch(0))
    assert not note(NonFinite(split(), SINGLE_PROCESS, tmp_path, scaled=False), 1, 1, update, [0])
    assert "could not be written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("scaled", [False, True])
def test_the_first_refusal_too_many_ends_the_job(tmp_path: Path, scaled: bool) -> None:
    """With a loss scale only that one is listed; of what comes after it nothing is."""
    found = NonFinite(split(), SINGLE_PROCESS, tmp_path, scaled)
    orders = list(Sampler(40, 0, micro_batch=4).epoch(0))
    refusals = [Skip(place, place, (0,)) for place in (1, 2, 3)]
    assert found.note(refusals, 2, 5, 1, lambda update: orders[update - 1])
    assert [each["update"] for each in json.loads((tmp_path / FILE).read_text())] == ([7] if scaled else [6, 7])
    metrics = Metrics(1.0, 0.5, math.inf, math.inf, 0.0, 4.0, tuple(Skip(count, count) for count in (1, 2, 3)))
    with pytest.raises(
        TrainingError, match=r"update 7 \(epoch 1\)" + (".* down to 4;" if scaled else " is not finite")
    ):
        found.stop(metrics, 2, 5, 1)
    found.stop(metrics, 4, 5, 1)


def test_refusals_are_told_once() -> None:
    from msaccel.training.metrics import MetricAccumulator

    metrics = MetricAccumulator()
    metrics._skipped += [Skip(0, 1, (2,))]
    assert metrics.skips() == [Skip(0, 1, (2,))]
    metrics._skipped += [Skip(3, 1)]
    assert metrics.skips() == [Skip(3, 1)] and not metrics.skips()
