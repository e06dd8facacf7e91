"""The bytes that a rank hands to the others: of each kind of update, summed up in a job, and after a resume."""

import json
import math

import numpy as np
import pytest

from msaccel.accel.dimreduce.bfgs import Constants
from msaccel.accel.dimreduce.layout import Layout
from msaccel.accel.dimreduce.update import SubspaceUpdate
from msaccel.step.update import Update
from msaccel.sweeps import status
from msaccel.training import optimizers
from msaccel.training.progress import Counts
from tests.conftest import OPTIMIZERS
from tests.running import Store

pytestmark = pytest.mark.usefixtures("graph_mode")

COMMON = ("data=synthetic", "tracking.uri=sqlite:///none", "train.batch_size=8")
FOUR = ("device=cpu4",)
LAYERS = (12 * 8 + 8, 8 * 4 + 4)  # of `tiny`
MEAN = 4 * sum(LAYERS)  # float32
LOCAL = (*FOUR, "accel=localsgd", "accel.localsgd.every=3")
UPDATES = {
    "one rank": ((), [0, 0]),
    "the window of one rank": (("accel=accum",), [0, 0]),
    "mean": (FOUR, [MEAN] * 2),
    "the second pass of sam": ((*FOUR, "accel=sam"), [2 * MEAN] * 2),
    "frozen layers": ((*FOUR, "accel=freeze", "accel.freeze.steps=1"), [MEAN] * 3 + [4 * LAYERS[1]] * 3),
    "local sgd": (LOCAL, [0, 0, MEAN] * 2),
    "post-local sgd": ((*LOCAL, "accel.localsgd.start=0.4"), [MEAN, MEAN, 0, 0, MEAN, 0]),
    "averaged moments": ((*LOCAL, "accel.localsgd.state=average", "optimizer=adam"), [0, 0, 3 * MEAN] * 2),
    # P and Q of two columns for the matrices (8, 12) and (4, 8), and both biases.
    "powersgd": ((*FOUR, "accel=powersgd"), [4 * (2 * (8 + 12) + 2 * (4 + 8) + 8 + 4)] * 2),
    "powersgd after a start": ((*FOUR, "accel=powersgd", "accel.powersgd.start=1"), [MEAN, 304]),
    # Two levels of pairs, in which each rank has the whole.
    "adasum of ranks": ((*FOUR, "accel=adasum", "accel.adasum.scope=rank"), [2 * MEAN] * 2),
    # The mean inside a server, one level, and the gathering inside; the larger shard is the first layer's matrix.
    "adasum of servers": (("device=cpu2x2", "accel=adasum"), [MEAN + 2 * 4 * 12 * 8] * 2),
}  # fmt: skip


@pytest.mark.parametrize(("overrides", "expected"), UPDATES.values(), ids=UPDATES)
def test_an_update_knows_what_its_ranks_exchange(job, tiny, patches, overrides, expected) -> None:
    parts = job(*COMMON, *overrides, network=tiny(), updates=6)
    windows = parts.windows(patches, 128)
    found = [parts.update.at(done, 6)(next(windows), 0.01).exchanged for done in range(len(expected))]
    assert found == expected


def test_a_step_in_a_subspace_counts_its_projections(tiny, patches) -> None:
    """The mean gradient, P g, and the way back of each trial, of the residual and of the step that was found."""
    network, components = tiny(), 3
    weights = network.trainable_params()
    layout = Layout(tuple(w.name for w in weights), tuple(tuple(w.shape) for w in weights))
    inner = Update(network, optimizers.build(weights, OPTIMIZERS["plain"]), 16, single=False)
    update = SubspaceUpdate(inner, layout=layout, constants=Constants(), max_norm=None)
    rows = np.linalg.qr(np.random.default_rng(0).standard_normal((layout.size, components)))[0].T
    update.enter(np.ascontiguousarray(rows, np.float32), components)
    both = [[patches.batch(np.arange(16))], [patches.batch(np.arange(16, 32))]]
    alone, found = update(both[:1], 0.0), update(both, 0.0)
    trials = update.step.counters.trials - 1
    assert alone.exchanged == 0 and update.step.counters.failed == 0 and trials >= 1
    assert found.exchanged == MEAN + 8 * components + (trials + 2) * MEAN
    both[0][0][0][0] = np.inf
    assert update(both, 0.0).exchanged == MEAN, "only the gradient was exchanged"


@pytest.mark.slow
def test_a_job_of_several_ranks_sums_it_up_and_shows_no_speed(store: Store) -> None:
    small = ("data=synthetic", "data.train_size=340", "data.test_size=70", "train.epochs=2", "model=mlp")
    ranks = ("device=cpu4", "device.simulate=always", "tracking.every=2")
    ended = store.run(*small, *ranks, "train.max_updates=5")
    assert ended.returncode == 0, ended.stderr
    assert "samples/s" not in ended.stdout and " of training" not in ended.stdout, "of a simulation"
    assert ended.stdout.count("simulated") == 1, "at the end; the beginning has it in capitals"
    (run,) = store.runs()
    (one,) = status.find(store.client, "mlp-synthetic", 10)
    assert run.data.metrics["throughput/samples_per_sec"] > 0 and one.samples_per_sec is None
    each = 4 * (784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10)
    assert store.history(run)["comm/bytes"] == [(update, each * update) for update in (2, 3, 4, 5)]


def test_a_job_that_an_earlier_version_began_does_not_claim_to_know() -> None:
    facts = json.loads(json.dumps(Counts(updates=5, exchanged=2800.0).state_dict()))
    assert Counts.of(facts, 10).exchanged == 2800
    del facts["counters"]["exchanged"]
    assert math.isnan(Counts.of(facts, 10).exchanged), "which is never logged"
