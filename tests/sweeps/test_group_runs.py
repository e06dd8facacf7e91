"""The run of a method in a sweep: the mean over its seeds, and what it says about the method."""

import numpy as np
from mlflow.entities import Metric
from scipy import stats

from msaccel.compare import report
from msaccel.compare.group_runs import interval
from msaccel.compare.runs import record
from msaccel.sweeps import status
from msaccel.sweeps.parent_run import keep_report
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
    assert clip.data.metrics["epoch"] == 3.0


def test_its_curves_are_the_mean_and_students_interval_of_those_of_its_seeds(planted: Planted) -> None:
    steps = [0, 10, 20, 30]
    curves = np.array([[0.30, 0.55, 0.70, 0.80], [0.40, 0.50, 0.76, 0.83], [0.20, 0.63, 0.73, 0.78]])
    ids = [planted.run(curve[-1], seed) for seed, curve in enumerate(curves)]
    for run_id, curve in zip(ids, curves, strict=True):
        points = [Metric("eval/accuracy", value, 0, step) for step, value in zip(steps, curve, strict=True)]
        planted.client.log_batch(run_id, points)
    planted.client.log_metric(ids[0], "eval/accuracy", 0.9, step=40)  # an update that only one of them has
    kept(planted, ids, complete=True)
    (group,) = groups(planted).values()
    found = {}
    for end in ("mean", "lo", "hi"):
        history = planted.client.get_metric_history(group.info.run_id, f"eval/accuracy/{end}")
        assert [point.step for point in history] == steps
        found[end] = np.array([point.value for point in history])
    low, high = stats.t.interval(0.95, len(curves) - 1, loc=curves.mean(0), scale=stats.sem(curves, axis=0))
    for end, expected in (("mean", curves.mean(0)), ("lo", low), ("hi", high)):
        np.testing.assert_allclose(found[end], expected, rtol=1e-12)
    assert (found["lo"] < found["mean"]).all() and (found["mean"] < found["hi"]).all()


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
