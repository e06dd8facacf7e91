"""What a study trains, and when it stops: the grid grows, looks end it, controls are trained, speed is interleaved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from msaccel.compare.runs import Record
from msaccel.compare.tuning import RATE
from msaccel.compare.verdicts import Verdict
from msaccel.config import compose
from msaccel.errors import ConfigError, TrainingError
from msaccel.study import plots, runner, sentences
from msaccel.study.claims import claims
from msaccel.study.jobs import RunIndex, StudyJob, logged_by
from msaccel.study.plan import most_jobs, plan
from msaccel.study.results import part_results
from msaccel.tracking.status import FAILED, FINISHED
from tests.study.simulated import PART, Simulated, peak

CLASSES = "model.classes"
CONTROLS = PART.replace("    seconds: 7", "    controls: {planted: 8}\n    seconds: 7")
SPEED = PART.replace("rates: [0.01, 0.02, 0.04]", "rates: [0.01]\n    speed: true\n    beside: 1").replace(
    "margin: 0.1", "margin: 3, endpoint: samples_per_sec"
)


SUPERIORITY = PART.replace("seeds: [5, 8]", "seeds: [15]\n    level: 0.05").replace(
    "equivalent, margin: 0.1", "better, margin: 10, endpoint: superiority"
)


def failing(job: StudyJob, effect: float, arm: str = "plain", every: int = 2) -> dict[str, float]:
    """As `peak`, but one arm fails with every so many of its seeds."""
    fails = job.arm == arm and job.seed % every == every - 1
    return {name: 0.1 if fails and "accuracy" in name else value for name, value in peak(job, 0.02, effect).items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_a_decided_hypothesis_ends_the_training_at_its_first_look(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Simulated(folder, monkeypatch, PART, peak)
    study.runner.run()
    assert [len(batch) for batch in study.batches] == [2 * 3 * 4, 2 * 3 * 1]
    assert max(seed for _, _, seed in study.trained()) == 4
    found = study.runner.answer(study.part)
    assert found.words == "equivalent within ± 0.1 points" and found.holds and found.rates == (0.02, 0.02)
    assert study.runner.missing(study.part) == []


def test_a_crashed_job_is_no_trial_and_is_trained_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike one that diverged, it says nothing about its rate."""
    study = Simulated(folder, monkeypatch, PART, peak)
    whole = study.record

    def crashing(job: StudyJob, metrics: dict[str, float]) -> Record:
        record = whole(job, metrics)
        return replace(record, status=FAILED) if (job.arm, job.rate, job.seed) == ("plain", 0.02, 1) else record

    monkeypatch.setattr(study, "record", crashing)
    with pytest.raises(TrainingError, match=r"^plain, optimizer.lr=0.02, seed 1 of study simulated, part .* crashed; "):
        study.runner.run()
    assert len(study.batches) == 1
    monkeypatch.setattr(study, "record", whole)
    study.runner.run()
    (repeated,) = study.batches[1]
    assert (repeated.arm, repeated.rate, repeated.seed) == ("plain", 0.02, 1)
    assert study.runner.missing(study.part) == []


def test_a_run_whose_data_said_how_many_classes_there_are_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text does so when it is read, and the run has logged the number; a published run does not say it."""
    text = PART.replace("model=mlp, data=synthetic, data.val_fraction=0.2", "model=gpt, data=shakespeare")
    text = text.replace("rates: [0.01, 0.02, 0.04]", "rates: [0.02]")
    study = Simulated(folder, monkeypatch, text, peak)
    whole = study.record

    def record(job: StudyJob, metrics: dict[str, float]) -> Record:
        found = whole(job, metrics)
        return replace(found, params=found.params | {CLASSES: "65"}) if job.seed % 2 else found

    monkeypatch.setattr(study, "record", record)
    study.runner.run()
    assert [len(batch) for batch in study.batches] == [2 * 5]
    assert study.runner.missing(study.part) == []
    assert study.runner.answer(study.part).holds


def test_a_run_with_more_classes_is_one_of_another_job() -> None:
    compose.register()
    settings = ("model=mlp", "data=synthetic")
    job, wider = (StudyJob("plain", 0.01, 0, (*settings, f"{CLASSES}={classes}")) for classes in (10, 20))
    index = RunIndex([Record("1", "0", str(wider), FINISHED, 0, 1, logged_by(wider), {}, {})])
    assert index.find(wider) and not index.find(job)


@pytest.mark.parametrize("differing", ["train.epochs=6", "train.max_updates=40", "precision=fp16"])
def test_arms_may_differ_in_budget_and_precision(differing: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PART.replace("plain: [accel=none]", f"plain: [accel=none]\n      another: [accel=none, {differing}]")
    study = Simulated(folder, monkeypatch, text.replace("method: clipped", "method: another"), peak)
    study.runner.run()
    found = study.runner.answer(study.part)
    assert found.words == "equivalent within ± 0.1 points" and found.holds
    (result,) = part_results(study.runner)
    assert result.tuned and len(result.tuned.sections) == 1 and len(result.tuned.sections[0].found.methods) == 3


def test_an_undecided_one_goes_on_to_the_last_look(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def noisy(job: StudyJob) -> dict[str, float]:
        sign = (-1) ** (job.seed + len(job.arm))
        return {**peak(job), "final/accuracy": 0.9 + 0.01 * sign * (job.seed % 3)}

    study = Simulated(folder, monkeypatch, PART, noisy)
    study.runner.run()
    assert max(seed for _, _, seed in study.trained()) == 7
    assert study.runner.answer(study.part).words == "inconclusive"
    assert len(study.trained()) == most_jobs(study.part)


def test_an_interrupted_look_has_the_answer_of_the_one_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At six seeds the method is better by far; that would be a look between those at five and eight."""

    def late(job: StudyJob) -> dict[str, float]:
        sign = (-1) ** (job.seed + len(job.arm))
        gain = 0.2 * (job.seed == 5 and job.arm == "clipped")
        return {**peak(job), "final/accuracy": 0.7 + gain + 0.01 * sign * (job.seed % 3)}

    study = Simulated(folder, monkeypatch, PART, late)
    study.runner.run()
    everything = [*study.records]
    for first, verdict in ((4, Verdict.NOT_TRAINED), (6, Verdict.INCONCLUSIVE)):
        study.records[:] = [record for record in everything if int(record.params["seed"]) < first]
        study.runner.refresh()
        found = study.runner.answer(study.part)
        assert found.verdict is verdict and study.runner.missing(study.part)
        judged = {run.seed for side in found.pair.sides for run in side.ended} if found.pair else set()
        assert judged == ({*range(5)} if first > 4 else set())
        (one,) = claims([study.runner])
        assert one.answer.verdict is verdict


def test_a_stricter_level_does_not_let_a_comparison_of_survivors_through(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """14 of 20 against 20 of 20: p = 0.02."""
    text = PART.replace("seeds: [5, 8]", "seeds: [20]\n    level: 0.0125").replace("equivalent", "better")
    study = Simulated(folder, monkeypatch, text, lambda job: failing(job, 0.03, every=3))
    study.runner.run()
    found = study.runner.answer(study.part)
    assert sentences.trains(found) == "20 of 20 against 14 of 20"
    assert found.verdict is Verdict.UNEQUAL_SHARES and found.holds is None


def test_an_answer_about_survivors_says_how_many_there_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PART.replace("seeds: [5, 8]", "seeds: [10]\n    level: 0.05").replace("equivalent", "better")
    study = Simulated(folder, monkeypatch, text, lambda job: failing(job, 0.03, every=4))
    study.runner.run()
    found, hypothesis = study.runner.answer(study.part), study.part.hypothesis
    assert found.verdict is Verdict.BETTER and hypothesis
    assert sentences.advice(hypothesis, found).endswith("; 10 of 10 against 8 of 10 train.")
    assert "10 of 10 against 8 of 10 train" in sentences.verdict(study.part, found)


def test_a_difference_refutes_equivalence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Simulated(folder, monkeypatch, PART, lambda job: peak(job, effect=-0.02))
    study.runner.run()
    found = study.runner.answer(study.part)
    assert found.words == "worse" and found.holds is False and len(study.batches) == 2
    assert not found.perhaps_inside


def test_a_difference_that_may_be_inside_the_margin_does_not_refute_equivalence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Simulated(folder, monkeypatch, PART, lambda job: peak(job, effect=-0.0009))
    study.runner.run()
    found = study.runner.answer(study.part)
    assert found.words == "worse" and found.holds is None and max(seed for _, _, seed in study.trained()) == 7
    assert found.perhaps_inside


@pytest.mark.parametrize(("effect", "perhaps_inside"), [(0.02, False), (0.0009, True)])
def test_a_gain_that_was_claimed_may_be_inside_the_margin(
    effect: float, perhaps_inside: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PART.replace("equivalent", "better")
    study = Simulated(folder, monkeypatch, text, lambda job: peak(job, effect=effect))
    study.runner.run()
    found = study.runner.answer(study.part)
    assert (found.words, found.holds, found.perhaps_inside) == ("better", True, perhaps_inside)


def test_a_rate_that_four_lucky_seeds_favour_gets_the_seeds_of_the_look(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lucky(job: StudyJob) -> dict[str, float]:
        later = job.rate == 0.02 and job.seed >= 4  # the best rate of the trials falls behind with more seeds
        return {name: value - 0.2 * later for name, value in peak(job).items()}

    rates = "[0.005, 0.01, 0.02, 0.04, 0.08]\n    neighbours: 0"
    study = Simulated(folder, monkeypatch, PART.replace("[0.01, 0.02, 0.04]", rates), lucky)
    study.runner.run()
    found = study.runner.answer(study.part)
    assert found.rates == (0.01, 0.01) and found.estimate and min(found.estimate.n) >= 5


@pytest.mark.parametrize(("best", "grid"), [(0.16, [0.01, 0.02, 0.04, 0.08, 0.16, 0.32]), (0.005, [0.0025, 0.005])])
def test_the_grid_grows_until_no_best_rate_is_at_its_edge(
    best: float, grid: list[float], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Simulated(folder, monkeypatch, PART, lambda job: peak(job, best))
    study.runner.run()
    rates = study.runner.grids(study.part)["plain"]
    assert rates == (grid if best > 0.04 else [*grid, 0.01, 0.02, 0.04])
    assert {rate for arm, rate, _ in study.trained() if arm == "plain"} == set(rates), "both arms at the same rates"
    assert study.runner.answer(study.part).decided


def test_the_grid_grows_where_an_edge_is_the_best_with_more_seeds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lucky(job: StudyJob) -> dict[str, float]:
        """The trials favour 0.02 by luck; 0.04 and 0.08 are better."""
        found = peak(job, 0.08)
        return {name: value + 0.004 * (job.rate == 0.02 and job.seed < 4) for name, value in found.items()}

    text = PART.replace("seeds: [5, 8]", "seeds: [20]\n    level: 0.05\n    neighbours: 1")
    study = Simulated(folder, monkeypatch, text, lucky)
    study.runner.run()
    assert study.runner.grids(study.part)["plain"] == [0.01, 0.02, 0.04, 0.08, 0.16]
    found = study.runner.answer(study.part)
    assert found.decided and found.rates == (0.08, 0.08) and found.estimate and found.estimate.n == (20, 20)
    assert not study.runner.missing(study.part)


def test_a_grid_that_may_not_grow_further_is_too_narrow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Simulated(folder, monkeypatch, PART + "    extend: 1\n", lambda job: peak(job, 0.64))
    study.runner.run()
    assert study.runner.grids(study.part)["plain"] == [0.01, 0.02, 0.04, 0.08]
    assert study.runner.answer(study.part).verdict is Verdict.NARROW


OWN_RATES = PART.replace("    seeds:", "    own_rates: {clipped: [0.4, 0.8, 1.6]}\n    seeds:")


@pytest.mark.parametrize(("best", "grid"), [(0.8, [0.4, 0.8, 1.6]), (3.2, [0.4, 0.8, 1.6, 3.2, 6.4])])
def test_an_arm_with_rates_of_its_own_has_a_grid_that_grows_alone(
    best: float, grid: list[float], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Simulated(
        folder, monkeypatch, OWN_RATES, lambda job: peak(job, best if job.arm == "clipped" else 0.02, 0.02)
    )
    study.runner.run()
    assert study.runner.grids(study.part) == {"plain": [0.01, 0.02, 0.04], "clipped": grid}
    assert {(arm, rate) for arm, rate, _ in study.trained()} == {
        *(("plain", rate) for rate in (0.01, 0.02, 0.04)),
        *(("clipped", rate) for rate in grid),
    }
    found = study.runner.answer(study.part)
    assert (found.words, found.holds, found.rates) == ("better", False, (best, 0.02))


def test_the_own_grid_of_an_arm_may_be_too_narrow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = OWN_RATES + "    extend: 1\n"
    study = Simulated(folder, monkeypatch, text, lambda job: peak(job, 12.8 if job.arm == "clipped" else 0.02))
    study.runner.run()
    assert study.runner.grids(study.part)["clipped"] == [0.4, 0.8, 1.6, 3.2]
    assert study.runner.answer(study.part).verdict is Verdict.NARROW


def test_arms_may_be_judged_at_one_known_rate_each(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a part that settles another one, in which both sides were tuned."""
    text = OWN_RATES.replace("[0.01, 0.02, 0.04]", "[0.02]").replace("[0.4, 0.8, 1.6]", "[0.4]")
    study = Simulated(folder, monkeypatch, text, lambda job: peak(job, job.rate, 0.02))
    study.runner.run()
    assert {(arm, rate) for arm, rate, _ in study.trained()} == {("plain", 0.02), ("clipped", 0.4)}
    found = study.runner.answer(study.part)
    assert (found.words, found.rates) == ("better", (0.4, 0.02))
    (result,) = part_results(study.runner)
    assert result.tuned
    (section,) = result.tuned.sections
    assert [one.pair.method.number(RATE) for one in section.comparisons] == [0.4]
    assert not section.refused


def test_arms_that_differ_in_more_than_the_method_are_compared_as_declared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PART.replace("[accel=clip]", "[accel=clip, schedule=cosine]")
    study = Simulated(folder, monkeypatch, text, peak)
    study.runner.run()
    (result,) = part_results(study.runner)
    assert result.tuned
    (section,) = result.tuned.sections
    assert not section.refused
    assert [said for said in section.flags if "schedule.name" in said] == [
        "schedule.name is cosine for clip and constant for none, so more than the method differs, as declared."
    ]


def test_controls_are_trained_and_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Simulated(folder, monkeypatch, CONTROLS, peak)
    study.runner.run()
    assert {("plain", 0.16, seed) for seed in range(5)} | {("plain", 0.02, seed) for seed in range(1000, 1005)} <= (
        study.trained()
    )
    said = study.runner.controlled(study.part)
    assert "the planted effect was found (-7.00 points" in said and "equals itself within ± 0.1 points (" in said
    assert all(job.seed < 1000 for job in study.runner.jobs(study.part)), "they are no evidence of the hypothesis"


def test_a_control_of_too_few_seeds_for_the_margin_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Simulated(folder, monkeypatch, CONTROLS.replace("margin: 0.1", "margin: 0.01"), peak)
    study.runner.run()
    said = study.runner.controlled(study.part)
    assert "from itself, but 5 seeds do not show that it equals itself within ± 0.01 points (" in said


@pytest.mark.parametrize("effect", [0.03, 0.0, -0.03])
def test_on_fresh_seeds_a_method_that_trains_more_often_has_no_answer_about_accuracy(
    effect: float, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PART.replace("seeds: [5, 8]", "seeds: [15]\n    first_seed: 100").replace("equivalent", "better")
    study = Simulated(folder, monkeypatch, text, lambda job: failing(job, effect))
    study.runner.run()
    assert {seed for _, _, seed in study.trained()} == {*range(100, 115)}
    found = study.runner.answer(study.part)
    assert found.verdict is Verdict.UNEQUAL_SHARES and found.holds is None


@pytest.mark.parametrize(("effect", "words", "holds"), [(0.03, "superior", True), (-0.03, "inconclusive", None)])
def test_superiority_has_an_answer_where_runs_fail(
    effect: float, words: str, holds: bool | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline fails in half of its runs, so a method that is worse than the others ends above in half of all."""
    study = Simulated(folder, monkeypatch, SUPERIORITY, lambda job: failing(job, effect))
    study.runner.run()
    found = study.runner.answer(study.part)
    assert (found.words, found.holds, found.rates) == (words, holds, (0.02, 0.02))
    assert found.estimate and found.estimate.value == pytest.approx(1 if effect > 0 else 7 / 15, abs=0.05)


@pytest.mark.parametrize(("margin", "lost", "holds"), [(20, 0.0, None), (20, 0.0202, None), (15, 0.0, False)])
def test_a_probability_is_beyond_its_margin_if_its_interval_is(
    margin: int, lost: float, holds: bool | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Complete separation of ten pairs shows 69 % or more, which is within 20 points of a half, not within 15.

    With `lost` taken from it, the method's last run is no longer above all of the baseline's.
    """
    text = SUPERIORITY.replace("seeds: [15]", "seeds: [10]")
    text = text.replace("better, margin: 10", f"equivalent, margin: {margin}")

    def numbers(job: StudyJob) -> dict[str, float]:
        found = peak(job, 0.02, 0.02)
        if (job.arm, job.seed) == ("clipped", 9):
            found["final/accuracy"] -= lost
        return found

    study = Simulated(folder, monkeypatch, text, numbers)
    study.runner.run()
    found = study.runner.answer(study.part)
    assert (found.verdict, found.holds) == (Verdict.SUPERIOR, holds)


def test_a_method_that_always_fails_is_inferior(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SUPERIORITY.replace("rates: [0.01, 0.02, 0.04]", "rates: [0.02]")
    study = Simulated(folder, monkeypatch, text, lambda job: failing(job, 0.0, "clipped", every=1))
    study.runner.run()
    found = study.runner.answer(study.part)
    assert (found.words, found.holds) == ("inferior", False)
    assert found.estimate and found.estimate.value == 0 and found.estimate.p == 2 / 2**15


def test_controls_that_fail_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(job: StudyJob) -> dict[str, float]:
        found = peak(job) if job.rate < 0.1 else peak(StudyJob(job.arm, 0.02, job.seed, ()))
        return {**found, "final/accuracy": found["final/accuracy"] - (0.01 if job.seed >= 1000 else 0)}

    study = Simulated(folder, monkeypatch, CONTROLS, other)
    study.runner.run()
    said = study.runner.controlled(study.part)
    assert "NOT found" in said and "DIFFERS from itself" in said


def test_speed_is_measured_in_rounds_of_all_arms_and_compared_in_pairs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine slows down to half during the study, which no comparison of unpaired samples would survive."""

    def drifting(job: StudyJob) -> dict[str, float]:
        factor = 1.1 + 0.01 * (job.seed % 2) if job.arm == "clipped" else 1.0
        return {"throughput/samples_per_sec": 1000 * factor * (1 - 0.1 * job.seed)}

    study = Simulated(folder, monkeypatch, SPEED, drifting)
    study.runner.run()
    assert [[(job.arm, job.seed) for job in arms] for arms in study.batches] == [
        [("plain", seed), ("clipped", seed)] for seed in range(len(study.batches))
    ]
    (first, *_), *_ = study.batches
    assert not any(word.startswith("device.threads") for word in first.overrides), "a turn has all threads"
    found = study.runner.answer(study.part)
    assert found.words == "faster" and found.estimate and found.estimate.paired


def test_speeds_of_another_machine_are_not_added_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Simulated(folder, monkeypatch, SPEED, lambda _: {"throughput/samples_per_sec": 1.0})
    study.tags["processor"] = "another one"
    study.runner.run()
    del study.records[4:]
    study.runner.refresh()
    with pytest.raises(ConfigError, match=r"speeds of part one were measured on another one, .*; go on there, or del"):
        study.runner.run()
    for record in study.records:
        record.tags["processor"] = "AMD EPYC"  # as in published runs of before
    monkeypatch.setattr(runner, "processor", lambda: "AMD EPYC (family 25, model 1, AVX2)")
    with pytest.raises(ConfigError, match=r"measured on AMD EPYC, and this is AMD EPYC \(family 25.*\); delete those"):
        study.runner.run()


def test_a_run_that_two_parts_share_is_counted_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = PART.partition("parts:\n")[2]
    study = Simulated(
        folder, monkeypatch, PART + part.replace("one:", "two:").replace("title: One", "title: Two"), peak
    )
    study.runner.run()
    assert len(study.runner.trained()) == len({run.run_id for run in study.runner.trained()}) == len(study.records)


def test_the_rate_plot_marks_runs_below_its_axis(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_fails(job: StudyJob) -> dict[str, float]:
        return peak(job) | ({"final/accuracy": 0.1, "val/accuracy": 0.1} if job.seed == 3 else {})

    study = Simulated(folder, monkeypatch, PART, one_fails)
    study.runner.run()
    figure = plots.rates(study.runner)
    assert figure
    (axes,) = figure.axes
    *lines, note = [line for line in axes.lines if not line.get_label().startswith("_")]
    assert [line.get_label() for line in lines] == ["plain", "clipped"]
    assert all(min(line.get_ydata()) > 0.9 for line in lines)
    assert note.get_label() == "below the axis"
    lowest, highest = axes.get_ylim()
    assert 0.9 < lowest < min(min(line.get_ydata()) for line in lines) and highest < 1
    failed = {(*line.get_xdata(), *line.get_ydata()) for line in axes.lines if line.get_marker() == "v"} - {()}
    assert failed == {(0.01, lowest), (0.02, lowest), (0.04, lowest)}


def test_a_rate_of_many_digits_stays_what_was_declared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Powers of two: rounded to six digits the best rate would no longer be at the edge of the grid."""
    rates = "rates: [0.001953125, 0.00390625]"
    study = Simulated(folder, monkeypatch, PART.replace("rates: [0.01, 0.02, 0.04]", f"{rates}\n    extend: 0"), peak)
    study.runner.run()
    assert study.runner.answer(study.part).verdict is Verdict.NARROW
    assert {job.overrides[-2] for batch in study.batches for job in batch} >= {"optimizer.lr=0.001953125"}


def test_the_plan_counts_jobs_by_arm_and_rate_and_measures_their_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Simulated(folder, monkeypatch, CONTROLS, peak)
    most = 2 * 3 * 8 + 2 * 5
    lines, hours = plan(study.runner)
    assert (
        lines[1]
        == "  one: 0 jobs done, 24 missing and about 34 that depend on them; about 0.06 hours, 2 at a time, 7 s each"
    )
    assert lines[2:] == ["    plain  0.01: 0/4  0.02: 0/4  0.04: 0/4", "    clipped  0.01: 0/4  0.02: 0/4  0.04: 0/4"]
    assert hours == pytest.approx(most * 7 / 2 / 3600)
    study.runner.run()
    study.records[0].tags["git_commit"] = "b" * 40
    study.records[1] = replace(study.records[1], end_time=study.records[1].started + 86_400_000)  # resumed the next day
    del study.records[3:]
    study.runner.refresh()
    lines, hours = plan(study.runner)
    assert "3 jobs done, 21 missing" in lines[1] and lines[1].endswith("3 s each")
    assert lines[2:] == [
        "    plain  0.01: 1/4  0.02: 1/4  0.04: 1/4",
        "    clipped  0.01: 0/4  0.02: 0/4  0.04: 0/4",
        "    mixed runs: git_commit is aaaaaaaaaaaa (2 runs), bbbbbbbbbbbb (1 runs).",
    ]
    assert hours == pytest.approx((most - 3) * 3 / 2 / 3600)
