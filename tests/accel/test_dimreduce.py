"""Stage 2 on a real network: what a trial may change, what a step may not raise, and the ways into stage 2."""

from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from safetensors.numpy import load_file

from msaccel.accel.dimreduce import PCA, SNAPSHOTS
from msaccel.accel.dimreduce.bfgs import Constants
from msaccel.accel.dimreduce.layout import Layout
from msaccel.accel.dimreduce.update import SubspaceUpdate
from msaccel.checkpoint import weights as checkpoint
from msaccel.data.dataset import InMemoryDataset
from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.kernels import BatchNorm2d
from msaccel.step.batch_norm import RunningStatistics
from msaccel.step.update import Update
from msaccel.training import optimizers
from msaccel.training.builder import Builder
from msaccel.training.plan import Plan
from tests import reference
from tests.conftest import OPTIMIZERS, Parts
from tests.running import Store
from tests.training.test_resume_exact import Job, with_batch_norm

pytestmark = pytest.mark.usefixtures("graph_mode")

JOB = (
    "data=synthetic", "data.train_size=340", "data.test_size=70", "model=mlp", "accel=dimreduce",
    "accel.dimreduce.components=3", "tracking.every=3",
)  # fmt: skip
TINY = (*JOB, "train.epochs=5", "accel.dimreduce.snapshot.count=6")


@pytest.fixture
def second(build: Callable[..., Parts]) -> tuple[Parts, SubspaceUpdate]:
    """A network and stage 2 for it, in a random subspace of 6 directions."""
    parts = build("mlp", "momentum", 16)
    weights = parts.network.trainable_params()
    layout = Layout(tuple(w.name for w in weights), tuple(tuple(w.shape) for w in weights))
    inner = Update(parts.network, optimizers.build(weights, OPTIMIZERS["plain"]), 16, single=False)
    update = SubspaceUpdate(inner, layout=layout, constants=Constants(), max_norm=None)
    rows = np.linalg.qr(np.random.default_rng(0).standard_normal((layout.size, 6)))[0].T
    update.enter(np.ascontiguousarray(rows, np.float32), len(rows))
    return parts, update


def windows(split: InMemoryDataset, size: int = 40) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """One window of two ranks, the last micro-batch short."""
    batches = [split.batch(np.arange(first, min(first + 16, size))) for first in range(0, size, 16)]
    return [batches[:2], batches[2:]]


def samples_of(ranks: list[list[tuple[np.ndarray, np.ndarray]]]) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of all micro-batches."""
    images, labels = zip(*(pair for rank in ranks for pair in rank), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def loss_of(update: SubspaceUpdate, ranks: list[list[tuple[np.ndarray, np.ndarray]]]) -> float:
    pairs = [pair for rank in ranks for pair in rank]
    losses = [float(update.loss(Tensor(images), Tensor(labels)).asnumpy()) for images, labels in pairs]
    return float(np.average(losses, weights=[len(labels) for _, labels in pairs]))


def test_a_trial_forward_changes_nothing(second, digits) -> None:
    parts, update = second
    before = {p.name: p.asnumpy().copy() for p in parts.network.get_parameters()}
    loss_of(update, windows(digits("mlp").train))
    for parameter in parts.network.get_parameters():
        np.testing.assert_array_equal(parameter.asnumpy(), before[parameter.name])


def test_the_subspace_step_never_raises_the_loss_of_its_window(second, digits) -> None:
    _, update = second
    update.constants = update.step.constants = Constants(alpha=0.0)  # the residual may raise it, the step may not
    split = digits("mlp").train
    for first in range(0, 400, 40):
        part = split.subset(np.arange(first, first + 40))
        before = loss_of(update, windows(part))
        signals = update(windows(part), 0.0)
        assert signals.samples == (16, 16, 8)
        assert loss_of(update, windows(part)) < before


def test_the_gradient_of_a_step_is_the_mean_of_the_window(second, digits) -> None:
    parts, update = second
    ranks = windows(digits("mlp").train)
    start = parts.weights()
    update.constants = update.step.constants = Constants(alpha=1.0, gamma=0.0, max_trials=1, sigma=0.999)
    update.step.projection.own.matrix[:] = 0.0  # no subspace: what is left is w − g
    update(ranks, 0.0)
    gradients = reference.mlp_gradients(start, *samples_of(ranks))
    moved = [old - new for old, new in zip(start, parts.weights(), strict=True)]
    assert reference.distance(moved, gradients) <= 1e-5


@pytest.mark.parametrize("bound", [0.5, 100.0], ids=["clipped", "within the bound"])
def test_the_residual_is_clipped_by_the_norm_of_the_gradient(second, digits, bound: float) -> None:
    parts, update = second
    ranks = windows(digits("mlp").train)
    start = parts.weights()
    gradients = reference.mlp_gradients(start, *samples_of(ranks))
    assert (reference.norm(gradients) > bound) == (bound < 1)
    update.max_norm = bound
    update.constants = update.step.constants = Constants(alpha=1.0, gamma=0.0, max_trials=1, sigma=0.999)
    update.step.projection.own.matrix[:] = 0.0  # no subspace: what is left is w − the clipped g
    outcome = update(ranks, 0.0).fetch()
    moved = [old - new for old, new in zip(start, parts.weights(), strict=True)]
    assert reference.distance(moved, reference.clip(gradients, bound)) <= 1e-5
    assert outcome.clipped == (bound < 1)


@pytest.mark.parametrize(("accel", "bound"), [("dimreduce", None), ("[dimreduce,clip]", 0.25)])
def test_stage_2_is_given_the_bound_of_clip(composed, tiny, tmp_path: Path, accel: str, bound: float | None) -> None:
    own = ("accel.clip.max_norm=0.25",) if bound else ()
    config, network = composed(*TINY, f"accel={accel}", *own), tiny()
    statistics = RunningStatistics(network, [0], SINGLE_PROCESS)
    _, second = Builder(network, config, SINGLE_PROCESS, statistics, tmp_path).stages(Plan(config, 340))
    assert second.update.max_norm == bound


def test_trials_move_no_running_statistics(graph_mode: None, patches: InMemoryDataset) -> None:
    """After an update they are as after the forward passes of its gradients alone."""
    network = nn.SequentialCell(BatchNorm2d(1), nn.Flatten(), nn.Dense(12, 4))
    weights = network.trainable_params()
    layout = Layout(tuple(w.name for w in weights), tuple(tuple(w.shape) for w in weights))
    inner = Update(network, optimizers.build(weights, OPTIMIZERS["plain"]), 16, single=False)
    update = SubspaceUpdate(inner, layout=layout, constants=Constants(), max_norm=None)
    rows = np.linalg.qr(np.random.default_rng(0).standard_normal((layout.size, 6)))[0].T
    update.enter(np.ascontiguousarray(rows, np.float32), len(rows))
    images, labels = patches.batch(np.arange(16))
    mean, variance = images.mean((0, 2, 3)), images.var((0, 2, 3), ddof=1)
    update([[(images, labels)]], 0.0)
    assert update.extra_forwards > 0
    (moving_mean, moving_variance) = (p.asnumpy() for p in network.untrainable_params())
    np.testing.assert_allclose(moving_mean, 0.1 * mean, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(moving_variance, 0.9 + 0.1 * variance, rtol=1e-5)


def test_a_gradient_that_is_not_finite_moves_nothing(second, digits) -> None:
    parts, update = second
    ranks = windows(digits("mlp").train)
    ranks[1][0][0][0] = np.inf
    before = parts.weights()
    outcome = update(ranks, 0.0).fetch()
    assert outcome.applied == 0 and outcome.consecutive_skips == 1
    for old, new in zip(before, parts.weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.fixture(scope="module")
def both_stages(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = Store(tmp_path_factory.mktemp("dimreduce"))
    ended = made.run(*TINY)
    assert ended.returncode == 0, ended.stderr
    return made


def test_one_job_logs_both_stages(both_stages: Store) -> None:
    (run,) = both_stages.runs()
    history = both_stages.history(run)
    assert history["dimreduce/explained_variance"][0][0] == 33, "stage 1 has 3 epochs of 11 updates"
    assert 0 < history["dimreduce/explained_variance"][0][1] <= 1
    second = [step for step, _ in history["dimreduce/trials"]]
    assert second == [34, 35], "stage 2 has 2 epochs of one window"
    assert all(0 <= share <= 1.001 for _, share in history["dimreduce/gradient_share"])
    samples = 340 * 5
    cost = history["cost/forward_equivalents"][-1][1]
    trials = sum(trials for _, trials in history["dimreduce/trials"])
    assert cost == 3 * samples + 340 * trials
    assert {"dimreduce/pca.safetensors"} == both_stages.artifacts(run, "dimreduce")
    assert len(both_stages.artifacts(run, "dimreduce/snapshots")) == 6


@pytest.mark.slow
def test_stage_2_alone_from_run_folder_or_matrix_is_the_same(both_stages: Store, store: Store) -> None:
    run, client = both_stages.runs()[0], both_stages.client
    snapshots = client.download_artifacts(run.info.run_id, "dimreduce/snapshots")
    matrix = client.download_artifacts(run.info.run_id, "dimreduce/pca.safetensors")
    weights = store.folder / "weights.safetensors"
    last = sorted(Path(snapshots).iterdir())[-1]
    names = ms.load_checkpoint(str(last), format="safetensors")
    checkpoint.write(weights, [ms.Parameter(value, name=name) for name, value in names.items()], {"update": 33})
    given = "accel.dimreduce."
    ways = [
        (f"{given}from_run={run.info.run_id}",),
        (f"{given}snapshots={snapshots}",),
        (f"{given}weights={weights}", f"{given}snapshots={snapshots}"),
        (f"{given}weights={weights}", f"{given}pca.path={matrix}"),
    ]
    for way in ways:
        ended = both_stages.run(*JOB, "train.epochs=2", *way)
        assert ended.returncode == 0, ended.stderr
    alone = [both_stages.history(run) for run in both_stages.runs()[1:]]
    assert len(alone) == 4
    assert all(history["train/loss"] == alone[0]["train/loss"] for history in alone)


@pytest.mark.slow
def test_stage_2_alone_begins_with_the_running_statistics(composed: Callable, tmp_path: Path) -> None:
    """Four micro-batches, each a tenth of the statistics, would not get far from a mean of 0 and a variance of 1."""
    common = (
        *JOB, "data.train_size=512", "train.batch_size=128", "optimizer.lr=0.05", "accel.dimreduce.epochs=1",
        "accel.dimreduce.accum_steps=2", "tracking.uri=sqlite:///none",
    )  # fmt: skip

    def trained(name: str, *overrides: str) -> dict[str, np.ndarray]:
        job = Job((*common, *overrides), tmp_path / name, composed, with_batch_norm)
        job.folder.mkdir()
        job.train({})
        return load_file(job.folder / "last.safetensors")

    whole = trained("whole", "train.epochs=9", "accel.dimreduce.snapshot.count=5")
    snapshots, matrix, last = (tmp_path / "whole" / name for name in (SNAPSHOTS, PCA, "last.safetensors"))
    for name, *ways in (
        ("snapshots", f"accel.dimreduce.snapshots={snapshots}"),
        ("weights", f"accel.dimreduce.weights={last}", f"accel.dimreduce.pca.path={matrix}"),
    ):
        alone = trained(name, "train.epochs=1", *ways)
        for statistic in (one for one in whole if "moving" in one):
            difference = np.linalg.norm(alone[statistic] - whole[statistic])
            assert difference < 0.2 * np.linalg.norm(whole[statistic]), f"{name}: {statistic} by {difference}"


def test_a_matrix_of_another_network_is_refused_with_a_sentence(both_stages: Store) -> None:
    run, client = both_stages.runs()[0], both_stages.client
    matrix = client.download_artifacts(run.info.run_id, "dimreduce/pca.safetensors")
    last = client.download_artifacts(run.info.run_id, "checkpoints/last.safetensors")
    way = (f"accel.dimreduce.weights={last}", f"accel.dimreduce.pca.path={matrix}", "accel.dimreduce.components=2")
    ended = both_stages.run(*JOB, "train.epochs=2", *way)
    assert ended.returncode == 1
    assert "accel.dimreduce.components=2" in ended.stderr and len(ended.stderr.splitlines()) == 1


def test_snapshots_that_do_not_fit_the_first_stage_are_refused(store: Store) -> None:
    ended = store.run(*TINY, "accel.dimreduce.snapshot.count=18")
    assert ended.returncode == 1
    assert "accel.dimreduce.snapshot.count=18" in ended.stderr and len(ended.stderr.splitlines()) == 1
