"""A run in MLflow for each arm that a study has judged, with its means over seeds and the answer as description."""

from __future__ import annotations

from msaccel.compare.group_runs import finished_groups, group_name, keep_group
from msaccel.compare.statistics import MIN_RUNS
from msaccel.study import sentences
from msaccel.study.runner import StudyRunner
from msaccel.tracking.store import find_experiment


def keep_groups(runner: StudyRunner) -> None:
    """Puts a run above those of both arms of each hypothesis whose part is complete, once.

    An arm some of whose runs are in another store has none, and neither have parts that measure speed: their runs have
    no curves of evaluation.
    """
    client, study = runner.client, runner.study
    experiment = find_experiment(client, study.name)
    if experiment is None:
        return
    kept = finished_groups(client, experiment.experiment_id)
    elsewhere = {record.run_id for record in runner.published}
    for key, part in study.parts.items():
        hypothesis = part.hypothesis
        if hypothesis is None or part.speed or runner.missing(part):
            continue
        answer = runner.answer(part)
        if answer.pair is None:
            continue
        for arm, side in zip((hypothesis.method, hypothesis.baseline), answer.pair.sides, strict=True):
            ids = [record.run_id for record in side.trained]
            label = " ".join([f"{key}, {arm}", *runner.overrides])
            if len(ids) < MIN_RUNS or elsewhere & {*ids} or group_name(label, len(ids)) in kept:
                continue
            own = [client.get_run(run_id) for run_id in ids]
            keep_group(client, label, side, own, [sentences.verdict(part, answer)], tags={})
