"""Speeds are measured in turns within one process, and each job of a round has a run with its speed."""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from msaccel.compare.runs import Record, find
from msaccel.compare.verdicts import Verdict
from msaccel.errors import ConfigError
from msaccel.study import speed
from msaccel.study.answers import answer
from msaccel.study.jobs import RunIndex, StudyJob, make_jobs
from msaccel.tracking.store import open_store
from msaccel.training import speed_round
from tests import forking
from tests.running import Store, wait_until
from tests.study.simulated import PART, Simulated

STAGE_2_ALONE = ("accel.dimreduce.epochs=20", "accel.dimreduce.weights=a", "accel.dimreduce.pca.path=b")
AVERAGED = ("accel.average.start=0", "accel.average.every=6")
COMMON = ("tracking.experiment=speeds", "model=mlp", "data=synthetic", "data.train_size=340", "data.test_size=70")


def arms(store: Store, **overrides: Sequence[str]) -> list[StudyJob]:
    common = (*COMMON, f"tracking.artifacts={store.folder}/artifacts")
    return [StudyJob(name, 0.01, 3, (*common, *more), in_turns=True) for name, more in overrides.items()]


def runs(store: Store) -> list[Record]:
    return find(open_store(store.uri), "speeds")


ARMS = {
    "plain": ("train.batch_size=16",),
    "accumulated": ("accel=accum", "accel.accum.steps=4", "train.batch_size=16"),
    "averaged": ("accel=average", "accel.average.start=0", "train.batch_size=16"),
}


# The command, with as few turns as may be, of a tenth of their length.
SHORT_TURNS = (
    "import sys; from msaccel.training import speed_round as s; s.TURNS, s.SECONDS = s.LEAST_TURNS, 0.01; "
    "sys.exit(s.main(sys.argv[1]))"
)


@pytest.mark.slow
def test_each_job_of_a_round_has_a_run_with_its_speed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "COMMAND", [sys.executable, "-c", SHORT_TURNS])
    assert store.client  # which makes it, as a copy
    jobs = arms(store, **ARMS)
    speed.measure(store.uri, "study-speeds", jobs)
    index = RunIndex(runs(store))
    found = [index.find(job) for job in jobs]
    assert all(found) and len(runs(store)) == 3
    for run, steps in zip(found, (1, 4, 1), strict=True):
        assert run and int(run.tags["in_turns"]) == speed_round.LEAST_TURNS and run.tags["sweep_id"] == "study-speeds"
        assert run.status == "FINISHED" and "final/accuracy" not in run.metrics
        trained = int(run.tags["updates"]) * 16 * steps
        assert trained == int(found[0].tags["updates"]) * 16, "as many samples as the others"  # type: ignore[union-attr]
        assert run.metrics["throughput/samples_per_sec"] == pytest.approx(trained / run.metrics["time/train_s"])
    alone = StudyJob("plain", 0.01, 3, jobs[0].settings)
    assert index.find(alone) is None, "a speed in turns is no run of the job alone"


@pytest.mark.slow
def test_a_round_ends_with_its_study_and_leaves_nothing(store: Store) -> None:
    jobs, script = arms(store, **ARMS), store.folder / "script.py"
    script.write_text(
        "from msaccel.study import speed; from msaccel.study.jobs import StudyJob; "
        f"speed.measure({store.uri!r}, 'study-speeds', {jobs!r})"
    )
    study = forking.start([str(script)], store.folder, os.environ)

    def measuring() -> list[str]:
        listed = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK))
        return [line for line in map(bytes.decode, listed) if "speed_round" in line and str(store.folder) in line]

    wait_until(measuring)
    study.kill()
    study.wait()
    wait_until(lambda: not measuring())
    assert not Path(store.folder / "mlflow.db").exists() or runs(store) == []


@pytest.mark.slow
def test_what_cannot_take_turns_is_one_sentence(store: Store) -> None:
    with pytest.raises(ConfigError) as error:
        speed.measure(store.uri, "study-speeds", arms(store, first=(), second=("device.threads=1",)))
    assert str(error.value).endswith("share device, device.threads and kernels.use; write the same for all.")
    assert "\n" not in str(error.value)


def test_jobs_of_several_ranks_cannot_take_turns(graph_mode: None) -> None:
    jobs = [speed_round.TimedJob((*COMMON, *more)) for more in ((), ("device=cpu4", "device.simulate=always"))]
    with pytest.raises(ConfigError, match=r"^device=cpu4 has several ranks, and a turn is that of one; .+\.$"):
        speed_round.must_share_a_process(jobs)


class Slower:
    """A job whose samples take so long, and a machine that slows down to half while it is measured."""

    period = 1

    def __init__(self, samples_of_update: int, seconds: float, calls: list[tuple[object, int]]) -> None:
        self.samples_of_update, self.seconds, self.calls = samples_of_update, seconds, calls

    def train(self, samples: int) -> float:
        self.calls.append((self, samples))
        return samples * self.seconds * (1 + len(self.calls) / 50)


def test_jobs_train_on_the_same_samples_in_turns_whose_first_changes() -> None:
    calls: list[tuple[object, int]] = []
    jobs = [Slower(32, 1e-4, calls), Slower(48, 2e-4, calls), Slower(96, 1e-4, calls)]
    samples, seconds = speed_round.take_turns(jobs, 6)  # type: ignore[arg-type]
    assert samples % 96 == 0 and 0.5 < samples * 1e-4 / speed_round.SECONDS < 1.5
    assert {count for _, count in calls[4:]} == {samples}
    firsts = [calls[4 + 3 * turn][0] for turn in range(6)]
    assert firsts == [*jobs, *jobs]
    first, second, third = speed_round.speeds(samples, seconds)
    assert first / second == pytest.approx(2, rel=0.01) and first / third == pytest.approx(1, rel=0.01)
    assert second == pytest.approx(1 / 2e-4, rel=0.5)


@pytest.mark.parametrize(
    ("seconds", "turns"), [(1e-4, speed_round.TURNS), (speed_round.SECONDS, speed_round.LEAST_TURNS)]
)
def test_slow_jobs_take_fewer_turns_but_enough(seconds: float, turns: int) -> None:
    of_jobs = speed_round.take_turns([Slower(32, seconds, []) for _ in range(2)])[1]  # type: ignore[misc]
    assert [len(of_job) for of_job in of_jobs] == [turns, turns]


class Periodic(Slower):
    """One whose every 20th update takes twenty times as long."""

    period, done = 20, 0

    def train(self, samples: int) -> float:
        before, self.done = self.done, self.done + samples // self.samples_of_update
        rare = self.done // self.period - before // self.period
        return (samples + 19 * rare * self.samples_of_update) * self.seconds


def test_what_only_some_updates_cost_is_in_every_turn() -> None:
    """Otherwise the median turn would have none of it: here a turn of a tenth of a second has two updates."""
    jobs = [Slower(500, 1e-4, []), Periodic(500, 1e-4, [])]
    samples, seconds = speed_round.take_turns(jobs, 6)  # type: ignore[arg-type]
    assert samples % (20 * 500) == 0
    assert [second / samples for second in seconds[1]] == pytest.approx([1e-4 * 39 / 20] * 6)


@pytest.mark.parametrize(
    ("overrides", "period"),
    [
        ((), 1),
        (("optimizer=shampoo", "optimizer.interval=20"), 20),
        (("optimizer=shampoo", "optimizer.interval=4", "accel=average", *AVERAGED), 12),
    ],
)  # fmt: skip
def test_the_period_of_a_job_is_that_of_all_its_parts(
    graph_mode: None, overrides: tuple[str, ...], period: int
) -> None:
    assert speed_round.TimedJob((*COMMON, *overrides)).period == period


@pytest.mark.parametrize(
    "overrides",
    [
        ("accel=average",),  # takes its first snapshot halfway
        ("accel=freeze", "train.epochs=20"),
        ("accel=freeze", "accel.freeze.form=boost", "train.epochs=null", "train.max_updates=1000"),
        ("accel=dimreduce", "train.epochs=20", *STAGE_2_ALONE),
    ],
)
def test_a_job_whose_updates_change_has_no_single_speed(graph_mode: None, overrides: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=rf"^{overrides[0]} has no single speed: its updates are of several kinds.+$"):
        speed_round.TimedJob((*COMMON, *overrides))


def test_a_machine_that_changes_between_turns_leaves_the_ratio() -> None:
    draw = np.random.default_rng(0)
    drift = draw.uniform(0.5, 2, 60)
    found = speed_round.speeds(100, [list(drift), list(1.25 * drift)])
    assert found[0] / found[1] == pytest.approx(1.25)
    assert found[0] * found[1] == pytest.approx((100 / np.median(drift)) ** 2 / 1.25)


ROUNDS, STUDIES = 10, 200  # rounds of each study
FALSE_SHARE, ERROR = 0.05, 3 * math.sqrt(0.05 * 0.95 / STUDIES)  # three standard errors of that share: 4.6 points
# Its margin is so small that every difference which is found is called faster or slower.
EQUAL_ARMS = (
    PART.replace("rates: [0.01, 0.02, 0.04]", "rates: [0.01]\n    speed: true\n    beside: 1")
    .replace("seeds: [5, 8]", f"seeds: [{ROUNDS}]\n    level: {FALSE_SHARE}")
    .replace("equivalent, margin: 0.1", "better, margin: 0.1, endpoint: samples_per_sec")
)


def drifting(draw: np.random.Generator, rounds: int) -> np.ndarray:
    """Logarithms of a machine's speed in successive rounds: AR(1) with φ = 0.8 and a standard deviation of 5 %."""
    found = [draw.normal(0, 0.05)]
    for change in draw.normal(0, 0.05 * math.sqrt(1 - 0.8**2), rounds - 1):
        found.append(0.8 * found[-1] + change)
    return np.array(found)


def measured(draw: np.random.Generator, machine: float, arms: int) -> list[float]:
    """The speeds of equally fast arms from the turns of one round."""
    noise = draw.normal(0, 0.062, (arms, speed_round.TURNS))  # of a turn; the median of 60 varies by 1 %
    return speed_round.speeds(100, np.exp(noise - machine).tolist())


@pytest.mark.slow
def test_drift_gives_no_more_false_verdicts_than_the_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drift of 5 % gives 5 % of them where equal arms take turns, and far more where one follows the other."""
    study = Simulated(tmp_path, monkeypatch, EQUAL_ARMS, lambda _: {})
    part, grids, draw = study.part, study.runner.grids(study.part), np.random.default_rng(0)
    jobs = make_jobs(study.runner.study, part, (), dict.fromkeys(part.arms, part.rates), range(2 * ROUNDS))
    runs = {(job.arm, job.seed): study.record(job, {}) for job in jobs}

    def verdict(plain: Iterable[float], clipped: Iterable[float], first_seed: int = 0) -> Verdict:
        """Of speeds with the seeds 0, 1, … for the plain arm, and from `first_seed` on for the other."""
        sides = [
            [
                replace(runs[arm, seed], metrics={"throughput/samples_per_sec": speed})
                for seed, speed in enumerate(speeds, first)
            ]
            for arm, speeds, first in (("clipped", clipped, first_seed), ("plain", plain, 0))
        ]
        return answer(part, grids, *sides).verdict

    in_turns, one_after_the_other = Counter[Verdict](), Counter[Verdict]()
    for _ in range(STUDIES):
        rounds = [measured(draw, machine, 2) for machine in drifting(draw, ROUNDS)]
        in_turns[verdict(*zip(*rounds, strict=True))] += 1
        alone = [measured(draw, machine, 1)[0] for machine in drifting(draw, 2 * ROUNDS)]
        one_after_the_other[verdict(alone[:ROUNDS], alone[ROUNDS:], first_seed=ROUNDS)] += 1
    assert in_turns.keys() | one_after_the_other.keys() == {Verdict.FASTER, Verdict.SLOWER, Verdict.INCONCLUSIVE}
    assert 1 - in_turns[Verdict.INCONCLUSIVE] / STUDIES <= FALSE_SHARE + ERROR, in_turns
    assert 1 - one_after_the_other[Verdict.INCONCLUSIVE] / STUDIES > 5 * FALSE_SHARE, (
        "otherwise nothing could fail above"
    )


def test_the_simulated_runs_vary_by_a_per_cent_and_the_machine_by_five() -> None:
    draw = np.random.default_rng(0)
    assert np.std(np.log([measured(draw, 0, 1)[0] for _ in range(300)])) == pytest.approx(0.01, rel=0.15)
    found = np.array([drifting(draw, 20) for _ in range(1000)])
    assert np.std(found, axis=0) == pytest.approx(0.05, rel=0.15)
    assert np.corrcoef(found[:, :-1].ravel(), found[:, 1:].ravel())[0, 1] == pytest.approx(0.8, abs=0.03)
