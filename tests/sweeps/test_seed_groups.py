"""The run of a method in a sweep: the mean over its seeds, and what it says about the method."""

import numpy as np
import pytest
from scipy import stats

from msaccel.compare import report
from msaccel.compare.runs import record
from msaccel.sweeps import status
from msaccel.sweeps.parent_run import keep_report
from msaccel.sweeps.seed_groups import interval
from msaccel.tracking.status import KIND, SEEDS, SWEEP
from msaccel.tracking.ui_links import overview
from msaccel.tracking.ui_view import DESCRIPTION, PARENT
from tests.compare.conftest import Planted


def kept(planted: Planted, ids: list[str], *, complete: bool) -> None:
    found = [planted.client.get_run(run_id) for run_id in ids]
    answer = report.build([record(run) for run in found])
    keep_report(planted.client, answer, found, "one", ["seed=range(3)"], planted.uri, complete=complete)


def groups(planted: Planted, kind: str = SEEDS) -> dict:
    found = planted.client.search_runs([planted.experiment], f"tags.{KIND} = '{kind}'")
    return {run.data.params["accel"] if kind == SEEDS else kind: run for run in found}


def test_each_method_of_a_complete_sweep_has_one(planted: Planted) -> None:
    accuracies = {"none": (0.90, 0.91, 0.92), "clip": (0.95, 0.96, 0.97), "accum": (0.5, 0.6)}
    ids = {
        (accel, seed): planted.run(accuracy, seed, curve=True, accel=accel, tag_accel=accel)
        for accel, found in accuracies.items()
        for seed, accuracy in enumerate(found)
    }
    ids["failed", 3] = planted.run(0.1, 3, curve=True, accel="clip", tag_accel="clip")  # does not train
    kept(planted, list(ids.values()), complete=False)
    assert not groups(planted)  # another seed may follow
    kept(planted, list(ids.values()), complete=True)
    found, sweep = groups(planted), groups(planted, SWEEP)[SWEEP]
    assert found.keys() == {"none", "clip"}  # two seeds have no interval that says anything
    for (accel, _), run_id in ids.items():
        parent = found.get(accel, sweep)
        assert planted.client.get_run(run_id).data.tags[PARENT] == parent.info.run_id
    clip = found["clip"]
    assert clip.data.tags[PARENT] == sweep.info.run_id and "seed" not in clip.data.params
    assert (clip.info.run_name, clip.info.status) == ("clip: mean of 3 seeds", "FINISHED")
    text = clip.data.tags[DESCRIPTION]
    assert text.startswith("**final accuracy 96.00% ± 1.00%**, mean over the 3 seeds that train, of 4")
    assert "+5.00 points [" in text and "better (p" in text
    ends = {end: planted.client.get_metric_history(clip.info.run_id, f"eval/accuracy/{end}") for end in ("mean", "lo")}
    assert [point.step for point in ends["mean"]] == list(range(0, 100, 10))
    means, lows = ([point.value for point in points] for points in ends.values())
    assert lows == pytest.approx(means)  # equal curves were planted
    assert clip.data.metrics["epoch"] == 3.0


def test_they_are_counted_nowhere_as_training(planted: Planted) -> None:
    ids = [planted.run(0.9, seed, tag_accel="none") for seed in range(3)]
    kept(planted, ids, complete=True)
    (group,) = groups(planted).values()
    assert group.info.run_id not in {run.run_id for run in [*planted.find(), *status.find(planted.client, None, 9)]}
    assert overview(planted.client, "http://127.0.0.1:5000")[0].startswith("lenet-mnist, 3 runs")


def test_a_run_that_somebody_has_put_elsewhere_stays_there(planted: Planted) -> None:
    ids = [planted.run(0.9, seed) for seed in range(3)]
    planted.client.set_tag(ids[0], PARENT, "mine")
    kept(planted, ids, complete=True)
    (group,) = groups(planted).values()
    parents = [planted.client.get_run(run_id).data.tags[PARENT] for run_id in ids]
    assert parents == ["mine", group.info.run_id, group.info.run_id]


def test_the_interval_is_students() -> None:
    seeds = np.random.default_rng(0).normal(0.9, 0.1, (5, 7))
    mean, low, high = interval(seeds)
    expected = stats.t.interval(0.95, 4, loc=seeds.mean(0), scale=stats.sem(seeds, axis=0))
    np.testing.assert_allclose((low, high), expected, rtol=1e-12)
    np.testing.assert_allclose(mean, seeds.mean(0))
