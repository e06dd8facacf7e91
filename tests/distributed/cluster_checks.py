"""What ranks check among themselves: `python -m tests.distributed.cluster_checks FOLDER NAMES`, started as ranks.

Each rank runs the checks of these names, a JSON list, in the order of CHECKS, and writes for each an empty text or what
was wrong. Jobs of real ranks are compared with the same job of virtual ranks, which the first one trains by itself.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import mindspore as ms
import numpy as np
from hydra import compose, initialize_config_dir
from mindspore import Parameter, Tensor, nn

from msaccel.accel.dimreduce import basis
from msaccel.accel.dimreduce.projection import Projection
from msaccel.checkpoint.gather import OF_RANKS, broadcast_state, gather_state
from msaccel.checkpoint.resume_file import ResumeState
from msaccel.checkpoint.state import assign, by_name, to_arrays
from msaccel.config.compose import register, typed
from msaccel.data.dataset import InMemoryDataset
from msaccel.data.sampler import Sampler
from msaccel.distributed.cluster import Cluster
from msaccel.distributed.collectives import Gather, Reduce
from msaccel.distributed.communicator import SINGLE_PROCESS, Communicator
from msaccel.distributed.exchange import Exchange, pair
from msaccel.distributed.sync import broadcast_parameters, must_agree
from msaccel.errors import TrainingError
from msaccel.files import CONF
from msaccel.schema import Config
from msaccel.step.batch_norm import RunningStatistics
from msaccel.step.update import Elsewhere, Update, Windows
from msaccel.training.builder import Builder
from msaccel.training.evaluation import Evaluator
from msaccel.training.metrics import MetricAccumulator
from tests import reference

RATES = (0.3, 0.2, 0.4, 0.1, 0.3)


class Net(nn.Cell):
    """A convolution with batch normalisation and a dense layer, for (n, 1, 3, 4)."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        self.dense1, self.dense2 = nn.Dense(12, 8), nn.Dense(8, 4)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.flatten, self.relu = nn.Flatten(), nn.ReLU()

    def construct(self, images: Tensor) -> Tensor:
        return self.dense2(self.relu(self.norm(self.dense1(self.flatten(images)))))


def network(norm: bool = False) -> nn.Cell:
    built, draw = Net(norm), np.random.default_rng(0).normal
    for parameter in built.trainable_params():
        if "norm" not in parameter.name:
            parameter.set_data(Tensor(draw(0, 0.5, parameter.shape).astype(np.float32)))
    return built


def patches() -> InMemoryDataset:
    draw = np.random.default_rng(0).integers
    images, labels = draw(0, 256, (256, 1, 3, 4), np.uint8), draw(0, 4, 256, np.int32)
    return InMemoryDataset(images, labels, np.linspace(-2, 2, 256, dtype=np.float32))


def composed(*overrides: str) -> Config:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return typed(compose("config", overrides=["train.batch_size=4", "optimizer.weight_decay=5e-4", *overrides]))


class Job:
    """One job's network and update, of real ranks or of virtual ones."""

    def __init__(self, config: Config, comm: Communicator, norm: bool = False) -> None:
        self.config, self.comm, self.network = config, comm, network(norm)
        here = range(config.device.ranks) if comm is SINGLE_PROCESS else [comm.rank]
        self.statistics = RunningStatistics(self.network, here, comm)
        self.update: Update = Builder(self.network, config, comm, self.statistics, Path()).update(20)
        self.metrics = MetricAccumulator()

    def windows(self, ranks: Sequence[Sequence[np.ndarray]], split: InMemoryDataset) -> Windows:
        every = [[split.batch(indices) for indices in window] for window in ranks]
        if self.comm is SINGLE_PROCESS:
            return every
        sizes = [tuple(map(len, window)) for window in ranks]
        return [every[r] if r == self.comm.rank else Elsewhere(sizes[r]) for r in range(len(ranks))]

    def train(self, updates: int, samples: int = 76) -> list[np.ndarray]:
        """Trains on the first samples; the last update of an epoch leaves ranks without samples."""
        split, steps = patches(), getattr(self.config.accel.get("accum"), "steps", 1)
        order = Sampler(samples, 0, self.config.train.batch_size, steps, self.config.device.ranks)
        every = (ranks for epoch in range(99) for ranks in order.epoch(epoch))
        for number, ranks in enumerate(islice(every, updates)):
            self.metrics.add(self.update(self.windows(ranks, split), RATES[number % 5]))
        with self.update.averaged():
            return self.weights()

    def weights(self) -> list[np.ndarray]:
        return [weight.asnumpy().copy() for weight in self.network.trainable_params()]


WITH_BATCH_NORM = {
    "mean of windows": ("device=cpu4", "accel=accum", "accel.accum.steps=2"),
    "local sgd": (
        "device=cpu4", "accel=[accum,localsgd,clip]", "accel.localsgd.every=3", "accel.accum.steps=2",
        "accel.clip.max_norm=0.2",
    ),
}  # fmt: skip
JOBS = {
    "sum": ("device=cpu4", "accel=accum", "accel.accum.steps=2", "accel.accum.reduction=sum", "optimizer.lr=0.001"),
    "clip, scaled": (
        "device=cpu4", "accel=clip", "accel.clip.max_norm=0.2", "precision=fp16", "loss_scale.mode=dynamic",
        "loss_scale.init=16777216",
    ),
    "adasum of ranks with adam": (
        "device=cpu4", "accel=[adasum,clip]", "accel.adasum.scope=rank", "accel.clip.max_norm=0.2", "optimizer=adam",
    ),
    "adasum of gradients": ("device=cpu4", "accel=adasum", "accel.adasum.scope=rank", "accel.adasum.apply=gradient"),
    "adasum of servers": ("device=cpu2x2", "accel=[adasum,accum]", "accel.accum.steps=2"),
    "adasum of servers' gradients": ("device=cpu2x2", "accel=adasum", "accel.adasum.apply=gradient"),
    "post-local sgd with adam": (
        "device=cpu4", "accel=localsgd", "accel.localsgd.every=3", "accel.localsgd.start=0.25",
        "accel.localsgd.state=average", "optimizer=adam", "optimizer.lr=0.01",
    ),
    "powersgd": (
        "device=cpu4", "accel=[powersgd,accum,clip]", "accel.accum.steps=2", "accel.powersgd.start=3",
        "accel.clip.max_norm=0.2", "device.bucket_mb=0.0001",
    ),
}  # fmt: skip


GOES_ON = {
    "local sgd": (("accel=localsgd", "accel.localsgd.every=4", "accel.localsgd.start=0.1"), ""),  # between two averages
    "powersgd": (("accel=powersgd", "accel.powersgd.start=2"), "powersgd.error."),
}


def same_as_virtual(comm: Communicator, overrides: Sequence[str], norm: bool = False) -> None:
    config = composed(*overrides)
    real = Job(config, comm, norm)
    found = real.train(20)
    ours, statistics = real.metrics.read(comm), real.statistics.mean() if norm else None
    with real.update.averaged(), real.statistics.averaged():
        must_agree(comm, real.network.trainable_params(), "after 20 updates")
        score = Evaluator(real.network, comm)(patches()) if norm else None
    if not comm.is_main:
        return  # one rank compares
    virtual = Job(config, SINGLE_PROCESS, norm)
    expected = virtual.train(20)
    error = reference.distance(found, expected)
    assert error <= 1e-5, f"weights differ by {error}"
    assert reference.distance(network(norm).trainable_params()[0].asnumpy()[None], found[0][None]) > 1e-3, "trained"
    theirs = virtual.metrics.read()
    for name in ("loss", "accuracy", "norm", "norm_max", "clipped", "loss_scale"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), 1e-4, 1e-6, err_msg=name)
    assert [replace(skip, bad=()) for skip in ours.skips] == [replace(skip, bad=()) for skip in theirs.skips]
    if norm:
        np.testing.assert_allclose(statistics, virtual.statistics.mean(), 1e-4, 1e-5)
        assert np.abs(statistics[:8]).max() > 0.01 and np.isfinite(statistics).all()
        with virtual.update.averaged(), virtual.statistics.averaged():
            reference_score = Evaluator(virtual.network)(patches())
        np.testing.assert_allclose([score.loss, score.accuracy], [reference_score.loss, reference_score.accuracy], 1e-4)


def ranks_are_one_batch(comm: Communicator) -> None:
    """4 ranks × 4 samples, mean, is one rank with 16."""
    found = Job(composed("device=cpu4"), comm).train(20)
    if comm.is_main:  # one rank compares
        one = Job(composed("train.batch_size=16"), SINGLE_PROCESS)
        assert reference.distance(found, one.train(20)) <= 1e-5


def adasum_is_the_recursion(comm: Communicator) -> None:
    """What ranks combine is the NumPy recursion on the gradients that they recorded."""
    for overrides, parts in ((("device=cpu4",), 4), (("device=cpu2x2",), 4), (("device=cpu2x2",), 2)):
        scope = "rank" if parts == 4 else "server"
        job = Job(composed(*overrides, "accel=adasum", f"accel.adasum.scope={scope}"), comm)
        draw = np.random.default_rng(comm.rank // (comm.world_size // parts)).standard_normal
        own = [draw(weight.shape).astype(np.float32) for weight in job.network.trainable_params()]
        flat = np.concatenate([gradient.reshape(-1) for gradient in own])
        everyone = comm.all_gather(flat)[:: comm.world_size // parts]
        edges = np.cumsum([gradient.size for gradient in own])[:-1]
        recorded = [[p.reshape(g.shape) for p, g in zip(np.split(f, edges), own, strict=True)] for f in everyone]
        found = [tensor.asnumpy() for tensor in job.update.combine(*map(Tensor, own))]
        error = reference.distance(found, reference.adasum_of(recorded))
        assert error <= 1e-6, f"{overrides} {scope}: {error}"


def goes_on(comm: Communicator, overrides: Sequence[str], own: str) -> None:
    """From a checkpoint that has something of every rank's own for each matrix: to the same bits."""
    config = composed("device=cpu4", *overrides)
    through, resumed = Job(config, comm), Job(config, comm)
    through.train(7)
    held = by_name([*through.network.get_parameters(), *through.update.state_dict().values()])
    every = gather_state(to_arrays(held.values()), comm)
    matrices = [weight.name for weight in through.network.trainable_params() if weight.ndim > 1]
    assert not comm.is_main or {f"{OF_RANKS}{own}{name}" for name in matrices} <= every.keys()
    saved = broadcast_state(ResumeState(7, every, {}) if comm.is_main else None, comm)
    assign(resumed.network.get_parameters(), saved.arrays)
    resumed.update.load_state_dict(saved.arrays)
    for found, expected in ((resumed.train(6), through.train(6)), (resumed.weights(), through.weights())):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def powersgd_skips_what_one_rank_cannot(comm: Communicator) -> None:
    """All ranks skip an update where one has a gradient that is not finite; errors, Q and weights keep their bits."""
    job = Job(composed("device=cpu4", "accel=powersgd", "train.on_nonfinite=skip"), comm)
    job.train(2)

    def state() -> dict[str, np.ndarray]:
        held = [*job.network.get_parameters(), *job.update.low_rank.errors, *job.update.low_rank.directions]
        return {parameter.name: parameter.asnumpy().copy() for parameter in held}

    images, labels = patches().batch(np.arange(4))
    own = np.full_like(images, np.inf) if comm.rank == 2 else images
    ranks = [[(own, labels)] if rank == comm.rank else Elsewhere((4,)) for rank in range(comm.world_size)]
    before, outcome = state(), job.update(ranks, 0.3).fetch()
    assert (outcome.applied, outcome.consecutive_skips) == (0, 1)
    for name, values in state().items():
        np.testing.assert_array_equal(values, before[name], err_msg=name)


def rows_are_spread(comm: Communicator) -> None:
    """P v and Pᵀ c from rows spread over ranks, for numbers of rows that do and do not divide by ranks."""
    from msaccel.accel.dimreduce.projection import ShardedProjection

    draw = np.random.default_rng(1).standard_normal
    for components in (1, 3, 4, 7, 32):
        matrix = draw((components, 501)).astype(np.float32)
        whole = Projection(matrix)
        spread = ShardedProjection(matrix[basis.rows(comm.rank, comm.world_size, components)], components, comm)
        vector, coordinates = draw(501).astype(np.float32), draw(components)
        np.testing.assert_allclose(spread.project(vector), whole.project(vector), 1e-12, 1e-12)
        np.testing.assert_allclose(spread.lift(coordinates), whole.lift(coordinates), 1e-5, 1e-6)
        must_agree(comm, [Parameter(Tensor(spread.lift(coordinates)))], "after lift")


def buckets_sum(comm: Communicator) -> None:
    shapes = [(3, 4), (1,), (5,), (2, 2, 2), (100,), *[(3,)] * 200]
    draw = np.random.default_rng(comm.rank).standard_normal
    own = [draw(shape).astype(np.float32) for shape in shapes]
    every = [comm.all_gather(tensor.reshape(-1)).sum(0, dtype=np.float64).reshape(tensor.shape) for tensor in own]
    for bucket_mb, n in ((0, 10), (0.00005, 10), (25, 205)):  # at last as many as a large network has
        found = Reduce(shapes[:n], bucket_mb)(tuple(map(Tensor, own[:n])))
        assert reference.distance([tensor.asnumpy() for tensor in found], every[:n]) <= 1e-6


def groups_gather(comm: Communicator) -> None:
    for ranks in ([0, 1], [2, 3], [0, 2], [1, 3], [0, 3], [1, 2]):
        if comm.rank in ranks:
            found = Gather(ranks, comm.rank)(Tensor(np.array([comm.rank, -0.5], np.float32))).asnumpy()
            np.testing.assert_array_equal(found, [[rank, -0.5] for rank in ranks])


def pairs_exchange(comm: Communicator) -> None:
    """Ranks of one server by a connection of their own, those of two by a sum; more than a socket's buffers hold."""
    own = np.random.default_rng(comm.rank).standard_normal(1_000_003).astype(np.float32)
    every = comm.all_gather(own)
    for overrides, distance, kind in (
        ("device=cpu4", 1, Exchange),
        ("device=cpu4", 2, Exchange),
        ("device=cpu2x2", 2, Gather),
    ):
        partner = comm.rank ^ distance
        gather = pair(comm, partner, composed(overrides).device)
        assert isinstance(gather, kind)
        for factor in (1, -2):  # a graph that runs again
            found = gather(Tensor(factor * own)).asnumpy()
            np.testing.assert_array_equal(found, factor * every[sorted((comm.rank, partner))])


def values_are_exchanged(comm: Communicator) -> None:
    rank, count = comm.rank, comm.world_size
    np.testing.assert_array_equal(comm.all_gather(np.array([[rank, 7]], np.int64)), [[[r, 7]] for r in range(count)])
    draw = np.random.default_rng(3).integers
    words = draw(-(2**63), 2**63 - 1, (count, 50), np.int64)
    np.testing.assert_array_equal(comm.all_gather(words[rank]), words)
    np.testing.assert_array_equal(comm.all_gather(words[rank].view(np.float64)).view(np.int64), words)
    exact = comm.all_sum(np.array([0.1 * (rank + 1), 1e-17]))
    assert exact[0] == sum(0.1 * (r + 1) for r in range(count))
    np.testing.assert_array_equal(comm.broadcast(np.full(3, rank + 1, np.float32)), [1, 1, 1])
    np.testing.assert_array_equal(comm.all_reduce(np.full(3, rank + 1, np.float32)), [10, 10, 10])
    comm.barrier()


def weights_are_compared(comm: Communicator) -> None:
    parameter = Parameter(Tensor(np.ones(5, np.float32)), name="w")
    must_agree(comm, [parameter], "at first")
    if comm.rank == 2:
        parameter.set_data(Tensor(np.nextafter(np.ones(5, np.float32), np.float32(2))))
    try:
        must_agree(comm, [parameter], "after update 7")
    except TrainingError as error:
        assert str(error).startswith("the weights of rank 2 differ from those of rank 0 after update 7")
    else:
        raise AssertionError("one bit went unseen")
    broadcast_parameters(comm, [parameter])
    must_agree(comm, [parameter], "after sharing")


def evaluation_is_shared(comm: Communicator) -> None:
    """Every sample is counted once, in 3 batches over 4 ranks."""
    from msaccel.training import evaluation

    evaluation._PIXELS = 12 * 100
    whole, shared = (Evaluator(network(), ranks)(patches()) for ranks in (SINGLE_PROCESS, comm))
    np.testing.assert_allclose(shared.loss, whole.loss, 1e-7)
    assert shared.accuracy == whole.accuracy


CHECKS: dict[str, Callable[[Communicator], None]] = {
    "values are exchanged": values_are_exchanged,
    "pairs exchange": pairs_exchange,
    "buckets sum": buckets_sum,
    "groups gather": groups_gather,
    "weights are compared": weights_are_compared,
    "evaluation is shared": evaluation_is_shared,
    "rows are spread": rows_are_spread,
    "4 ranks are one batch": ranks_are_one_batch,
    "adasum is the recursion": adasum_is_the_recursion,
    "powersgd skips": powersgd_skips_what_one_rank_cannot,
    **{
        f"{name} goes on": (lambda comm, o=overrides, own=own: goes_on(comm, o, own))
        for name, (overrides, own) in GOES_ON.items()
    },
    **{
        name: (lambda comm, o=overrides: same_as_virtual(comm, o, norm=True))
        for name, overrides in WITH_BATCH_NORM.items()
    },
    **{name: (lambda comm, o=overrides: same_as_virtual(comm, o)) for name, overrides in JOBS.items()},
}


# What other checks or whole jobs show too, by another way; `make soak` runs them.
AT_LENGTH = (
    "4 ranks are one batch", "adasum is the recursion", "local sgd goes on", "sum",
    "adasum of gradients", "adasum of servers", "adasum of servers' gradients", "post-local sgd with adam",
)  # fmt: skip


def main(folder: Path, names: Sequence[str]) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    gc.freeze()  # every compilation looks for garbage among all that there is
    comm = Cluster(composed("device=cpu4").device)
    found: dict[str, str] = {}
    for name in (name for name in CHECKS if name in names):
        try:
            CHECKS[name](comm)
            found[name] = ""
        except BaseException:
            found[name] = traceback.format_exc()
        (folder / f"{comm.rank}.json").write_text(json.dumps(found))
        comm.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
    os._exit(0)
