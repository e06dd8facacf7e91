"""The training loop from inside: what an update is given, what the clock counts, what an evaluation sees and keeps."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from msaccel.checkpoint import weights
from msaccel.checkpoint.resume_file import ResumeState
from msaccel.data.dataset import DatasetSplits, InMemoryDataset
from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.errors import CheckpointError
from msaccel.kernels import BatchNorm2d
from msaccel.schema import Config
from msaccel.step.batch_norm import RunningStatistics
from msaccel.step.update import Update
from msaccel.tracking.null_run import NullRun
from msaccel.tracking.progress_bar import ProgressBar
from msaccel.training.builder import Builder
from msaccel.training.evaluation import LAST, Evaluator, Score
from msaccel.training.job_state import arrays_of, facts_of, load_facts
from msaccel.training.loop import Training
from msaccel.training.plan import Plan
from msaccel.training.progress import Counts
from msaccel.training.resume_checkpoints import ResumeCheckpoints

pytestmark = pytest.mark.usefixtures("graph_mode")

# 40 training images in windows of 2 ranks × 8: 3 updates an epoch, the last one of 8.
TWO_RANKS = ("device=cpu4", "device.ranks_per_server=2", "device.simulate=always")
JOB = ("model=mlp", "data=synthetic", "train.batch_size=8", "train.epochs=2", "tracking.every=1", *TWO_RANKS)
UPDATES = 6


class Recorder(NullRun):
    """Keeps the points that MLflow would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[str, int, float]] = []

    def metrics(self, update: int, values: Mapping[str, float]) -> None:
        self.points += [(name, update, float(value)) for name, value in values.items()]

    def values(self, name: str) -> list[float]:
        return [value for found, _, value in self.points if found == name]


class Normalised(nn.Cell):
    """Batch norm and a dense layer, for images (n, 1, 3, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dense = BatchNorm2d(1), nn.Dense(12, 4)

    def construct(self, images: Tensor) -> Tensor:
        return self.dense(self.norm(images).reshape(len(images), -1))


@dataclass
class Watched:
    """A job's training, with its run and its network."""

    training: Training
    run: Recorder
    network: nn.Cell
    statistics: RunningStatistics
    evaluated: list[InMemoryDataset] = field(default_factory=list)


@pytest.fixture
def watch(composed: Callable[..., Config], patches: InMemoryDataset, tmp_path: Path) -> Callable[..., Watched]:
    """Puts a training together from overrides and a network."""

    def put_together(network: nn.Cell, *overrides: str) -> Watched:
        config = composed(*JOB, *overrides)
        ms.set_seed(0)
        splits = [patches.subset(np.arange(first, first + 40)) for first in (0, 40, 80)]
        data = DatasetSplits("patches", *splits, classes=4, digest="")
        plan, run = Plan(config, 40), Recorder()
        statistics = RunningStatistics(network, range(2), SINGLE_PROCESS)
        builder = Builder(network, config, SINGLE_PROCESS, statistics, tmp_path)
        training = Training(
            plan=plan,
            data=data,
            epoch_samples=builder.epoch_samples(plan, data.train),
            network=network,
            stages=builder.stages(plan),
            comm=SINGLE_PROCESS,
            statistics=statistics,
            run=run,
            bar=ProgressBar("", silent=True),
            folder=tmp_path,
            resume_checkpoints=ResumeCheckpoints(config.checkpoint, tmp_path, SINGLE_PROCESS, {}),
        )
        return Watched(training, run, network, statistics)

    return put_together


@pytest.mark.parametrize(
    ("count", "value"),
    [("stage", 1), ("stage", -1), ("updates", -5), ("epoch", -1), ("epoch", 1), ("epoch", 9), ("updates_before", 1)],
)
def test_counts_that_no_job_has_are_refused(watch, tiny, count: str, value: int) -> None:
    """From a stage beyond the last one nothing was trained any more, and the job ended FINISHED."""
    training = watch(tiny()).training
    facts = facts_of(training)
    facts["counters"][count] = value
    with pytest.raises(CheckpointError, match="the resume checkpoint is not understood"):
        go_on(training, facts)


def go_on(training: Training, facts: dict) -> None:
    training.counts = Counts.of(facts, training.plan.total_updates)
    load_facts(training, facts)


STOPS = ("train.eval_every=0.4", "train.target_accuracy=0.01", "train.stop_at_target=true")


def stopped(watch: Callable, tiny: Callable) -> ResumeState:
    """The state of a job that has reached its target after the second of three updates of its first epoch."""
    training = watch(tiny(), *STOPS).training
    training.train()
    assert training.counts.updates == 2 and training.counts.reached_target
    return ResumeState(2, arrays_of(training), facts_of(training))


def resumed(watched: Watched, state: ResumeState) -> Watched:
    training = watched.training
    training.resume_state, training.counts = state, Counts.of(state.facts, training.plan.total_updates)
    training.train()
    return watched


def test_a_job_that_had_stopped_at_its_target_only_scores_its_checkpoint_again(watch, tiny) -> None:
    """It is resumed where its results could not be logged; it trained on to the next evaluation."""
    state = stopped(watch, tiny)
    watched = resumed(watch(tiny(), *STOPS), state)
    assert watched.training.counts.updates == 2
    assert {name for name, _, _ in watched.run.points} == {"final/accuracy", "final/loss", "best/accuracy"}


def test_a_resumed_job_remembers_its_largest_memory(watch, tiny) -> None:
    """The process that had it has ended."""
    facts = facts_of(watch(tiny()).training)
    facts["counters"]["peak_mb"] = 1e6
    watched = watch(tiny())
    go_on(watched.training, facts)
    watched.training.train()
    assert set(watched.run.values("memory/peak_mb")) == {1e6}


@pytest.mark.parametrize(("updates", "epochs"), [(2, 0), (3, 1), (4, 1)])
def test_a_budget_that_ends_within_an_epoch_does_not_complete_it(
    watch, tiny, tmp_path: Path, updates: int, epochs: int
) -> None:
    training = watch(tiny(), "train.epochs=null", f"train.max_updates={updates}").training
    training.train()
    assert weights.read(tmp_path / LAST, training.network.get_parameters())["epoch"] == epochs


def test_every_log_point_is_shown(watch, tiny, monkeypatch) -> None:
    training, shown = (watched := watch(tiny())).training, []
    monkeypatch.setattr(training.bar, "show", shown.append)
    training.train()
    assert [(one.update, one.epoch) for one in shown] == [(n, 1 + (n > 3)) for n in range(1, UPDATES + 1)]
    assert {(one.updates, one.epochs, one.stages, one.samples_per_sec) for one in shown} == {(UPDATES, 2, 1, None)}
    assert [one.loss for one in shown] == watched.run.values("train/loss")
    assert all(one.seconds_left > 0 for one in shown), "an evaluation follows the last update"


def test_the_final_score_leaves_the_trained_weights_in_the_network(watch, tiny) -> None:
    """From these a job goes on whose results could not be logged; what was scored is an average here."""
    watched = watch(tiny(), "optimizer=schedulefree", "optimizer.lr=0.1")
    training, update = watched.training, watched.training.stages[0].update
    training.evaluation_weights = update.evaluation_weights()
    training.train()
    averages = {
        name.removeprefix("x."): p.asnumpy() for name, p in update.state_dict().items() if name.startswith("x.")
    }
    assert len(averages) == 4
    for weight in watched.network.trainable_params():
        assert not np.array_equal(weight.asnumpy(), averages[weight.name])


@pytest.mark.parametrize(("scale", "factor"), [("none", 1), ("sqrt", 2**0.5), ("linear", 2)])
def test_an_update_is_given_the_rate_of_its_number(watch, tiny, monkeypatch, scale: str, factor: float) -> None:
    accum = ("accel=accum", "accel.accum.steps=2", f"accel.accum.lr_scale={scale}")
    watched = watch(tiny(), *accum, "optimizer.lr=0.25", "schedule=linear", "schedule.warmup=0")
    given: list[float] = []
    plain = Update.__call__

    def spied(update: Update, windows: object, rate: float) -> object:
        given.append(rate)
        return plain(update, windows, rate)

    monkeypatch.setattr(Update, "__call__", spied)
    watched.training.train()
    total = watched.training.plan.total_updates
    assert total == 4, "2 epochs of windows of 2 ranks × 2 × 8"
    assert given == pytest.approx([0.25 * factor * (1 - number / total) for number in range(total)])
    assert watched.run.values("lr") == given


def test_the_clock_stands_while_graphs_are_built_and_scores_are_made(watch, tiny, monkeypatch) -> None:
    watched = watch(tiny())
    counts, stood = watched.training.counts, []

    def spy(owner: type, name: str) -> None:
        plain = getattr(owner, name)

        def spied(*arguments: object) -> object:
            before = counts.clock.seconds
            time.sleep(0.002)
            stood.append((name, counts.clock.seconds == before))
            return plain(*arguments)

        monkeypatch.setattr(owner, name, spied)

    spy(Update, "compile")
    spy(Evaluator, "__call__")
    watched.training.train()
    assert {name for name, _ in stood} == {"compile", "__call__"}
    assert all(still for _, still in stood), stood
    assert counts.compiling.seconds > 0 and counts.clock.seconds > 0


def test_every_size_is_compiled_before_its_first_update(watch, tiny, monkeypatch) -> None:
    """Else the training clock would count the compilation."""
    watched, known = watch(tiny(), "train.batch_size=16"), set()
    compile_, update = Update.compile, Update.__call__
    monkeypatch.setattr(Update, "compile", lambda self, x, y: (known.add(len(y)), compile_(self, x, y)))

    def spied(self: Update, windows: list, rate: float) -> object:
        assert {len(labels) for window in windows for _, labels in window} <= known
        return update(self, windows, rate)

    monkeypatch.setattr(Update, "__call__", spied)
    watched.training.train()
    assert len(known) > 1, "the last window of an epoch is short"


def test_scores_are_of_the_mean_statistics_of_all_ranks(watch, monkeypatch) -> None:
    watched = watch(Normalised())
    statistics, seen = watched.statistics, []

    def spied(evaluator: Evaluator, split: InMemoryDataset, mistakes: object = None) -> Score:
        found = np.concatenate([p.asnumpy().ravel() for p in watched.network.untrainable_params()])
        ranks = [own.asnumpy() for own in statistics.own.values()]
        seen.append((found, ranks))
        return Score(1.0, 0.5)

    monkeypatch.setattr(Evaluator, "__call__", spied)
    watched.training.train()
    for found, (one, other) in seen[:-1]:
        assert not np.array_equal(one, other), "each rank has moved its own"
        np.testing.assert_allclose(found, (one.astype(float) + other) / 2, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(seen[-1][0], seen[-2][0], "the final score is of what was saved")


def test_the_best_is_chosen_on_the_validation_split(watch, tiny, monkeypatch) -> None:
    watched = watch(tiny(), "train.epochs=3")
    data = watched.training.data
    scripted = {id(data.test): [0.9, 0.2, 0.95, 0.95], id(data.validation): [0.5, 0.6, 0.4]}
    monkeypatch.setattr(
        Evaluator, "__call__", lambda self, split, mistakes=None: Score(1.0, scripted[id(split)].pop(0))
    )
    watched.training.train()
    counts = watched.training.counts
    assert (counts.best, counts.best_test) == (0.6, 0.2)
    assert watched.run.values("best/accuracy") == [0.2]


def test_evaluations_within_an_epoch_change_nothing_that_is_trained(watch, tiny) -> None:
    """Three updates an epoch: half of it has passed after the second one."""
    plain, often = watch(tiny()), watch(tiny(), "train.eval_every=0.5")
    for watched in (plain, often):
        watched.training.train()
    steps = [[update for name, update, _ in watched.run.points if name == "eval/loss"] for watched in (plain, often)]
    assert steps == [[3, 6], [2, 3, 5, 6]]
    assert often.run.values("train/loss") == plain.run.values("train/loss")
    assert often.run.values("final/loss") == plain.run.values("final/loss")


def test_a_job_ends_at_its_target_within_an_epoch(watch, tiny, monkeypatch) -> None:
    target = ("train.eval_every=0.5", "train.target_accuracy=0.6", "train.stop_at_target=true")
    watched = watch(tiny(), "train.epochs=3", *target)
    scores = iter([0.5, 0.5, 0.7])
    of_validation = watched.training.data.validation
    monkeypatch.setattr(
        Evaluator,
        "__call__",
        lambda self, split, mistakes=None: Score(1.0, next(scores) if split is of_validation else 0.1),
    )
    watched.training.train()
    assert watched.training.counts.updates == 5
    assert watched.run.values("samples/to_target") == [72], "40 of the first epoch, two updates of 16 of the second"


def test_label_smoothing_of_the_settings_reaches_the_loss(job, tiny, patches) -> None:
    plain, smooth = (job(*JOB, f"train.label_smoothing={value}", network=tiny()) for value in (0.0, 0.3))
    losses = []
    for made in (plain, smooth):
        images, labels = patches.batch(np.arange(8))
        logits = made.network(Tensor(images)).asnumpy().astype(float)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        smoothing = made.config.train.label_smoothing
        targets = np.full(log_p.shape, smoothing / 3)
        targets[np.arange(8), labels] = 1 - smoothing
        signals = made.update([[(images, labels)], [(images, labels)]], 0.0)
        losses.append(float(signals.measured[0].asnumpy()[0]))
        assert losses[-1] == pytest.approx(-(targets * log_p).sum(1).mean(), rel=1e-5)
    assert losses[0] != losses[1]
