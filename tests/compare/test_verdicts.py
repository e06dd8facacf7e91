"""The five answers and how often they are wrong, by simulation; which runs train; what no verdict is given for."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binom, fisher_exact
from statsmodels.stats.power import TTestIndPower
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import ttost_ind

from msaccel.compare import statistics
from msaccel.compare.measures import ACCURACY, FINAL, SPEED
from msaccel.compare.render import export
from msaccel.compare.render.forest import forests
from msaccel.compare.render.markdown import section_text
from msaccel.compare.render.terminal import line
from msaccel.compare.success import runs_needed
from msaccel.compare.verdicts import Question, Verdict, decide, estimates
from tests.running import soak

from .conftest import Planted
from .equal_methods import tuned, tuned_pair

STUDIES = 2000
ACCUM = {"accel": "accum", "accel__accum__steps": "4"}


def seeds(values: object) -> dict[int, float]:
    return dict(enumerate(map(float, values)))  # type: ignore[call-overload]


def answers(draw: np.random.Generator, n: int, effect: float, methods: int = 1, margin: float = 0.001) -> list[str]:
    """The verdicts of a report on methods that differ from their baselines by an effect; the spread is 0.001."""
    asked = []
    for _ in range(methods):
        ours, theirs = draw.normal(0.98, 0.001, (2, n))
        asked.append(Question(ACCURACY, statistics.difference(seeds(ours + effect), seeds(theirs)), margin))
    return [verdict.words for verdict in decide(asked)]


@pytest.mark.parametrize("methods", [1, 3, 10])
@pytest.mark.parametrize("n", [5, 10, 20])
def test_equal_methods_are_hardly_ever_called_different(n: int, methods: int) -> None:
    draw = np.random.default_rng(n * methods)
    studies = STUDIES // methods
    wrong = sum(bool({"better", "worse"} & {*answers(draw, n, 0.0, methods)}) for _ in range(studies))
    assert wrong / studies <= 0.055 + 2 * math.sqrt(0.05 * 0.95 / studies)


@pytest.mark.parametrize("n", [5, 10, 20])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_difference_as_large_as_the_margin_is_hardly_ever_called_equivalent(n: int, sign: int) -> None:
    draw = np.random.default_rng(n)
    said = [answers(draw, n, sign * 0.001)[0] for _ in range(STUDIES)]
    assert sum(word.startswith(("equivalent", "differs by less")) for word in said) / STUDIES <= 0.055


def test_equal_methods_are_shown_to_be_equivalent_with_the_seeds_that_it_takes() -> None:
    draw = np.random.default_rng(0)
    estimate = statistics.difference(seeds(draw.normal(0, 1, 10)), seeds(draw.normal(0, 1, 10)))
    assert estimate and estimate.error
    exact = statistics.welch(0.0, [0.001 / math.sqrt(10)] * 2, (10, 10))
    runs = exact.needed(0.001)
    assert runs is not None and 17 <= runs <= 20
    said = [answers(draw, runs, 0.0)[0] for _ in range(STUDIES)]
    assert 0.77 <= said.count("equivalent within ± 0.1 points") / STUDIES <= 0.87
    found = [answers(draw, runs, 0.001)[0] for _ in range(STUDIES)]
    assert found.count("better") / STUDIES >= 0.8
    assert exact.needed(1e-6) is None, "more runs than anybody makes"


def test_a_difference_that_is_sure_and_small_says_both() -> None:
    draw = np.random.default_rng(0)
    said = {answers(draw, 400, 0.0004)[0] for _ in range(20)}
    assert said == {"differs by less than 0.1 points"}


@given(st.floats(0.2, 3), st.integers(3, 40), st.sampled_from([0.05, 0.02]))
def test_the_smallest_effect_shown_is_the_one_of_a_power_analysis(spread: float, n: int, level: float) -> None:
    estimate = statistics.welch(0.0, [spread / math.sqrt(n)] * 2, (n, n))
    visible = estimate.visible(level)
    assert visible is not None
    power = TTestIndPower().power(visible / spread, n, level)
    assert power == pytest.approx(0.8, abs=0.04)


FEW = st.lists(st.floats(0.1, 10), min_size=3, max_size=8)


@given(FEW, FEW, st.floats(0.01, 5))
def test_equivalence_is_the_one_of_statsmodels(ours: list[float], theirs: list[float], margin: float) -> None:
    assume(all(np.ptp(side) > 1e-6 for side in (ours, theirs)))
    estimate = statistics.difference(seeds(ours), seeds(theirs))
    assert estimate is not None
    expected = ttost_ind(np.array(ours), np.array(theirs), -margin, margin, usevar="unequal")[0]
    assert estimate.equivalence_p(margin) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_equivalence_of_a_ratio_is_symmetric() -> None:
    ours, theirs = seeds([100, 101, 99, 100.5]), seeds([100, 99.5, 100.7, 100.2])
    one, other = statistics.ratio(ours, theirs), statistics.ratio(theirs, ours)
    assert one and other and one.equivalence_p(0.03) == pytest.approx(other.equivalence_p(0.03))
    assert [verdict.words for verdict in decide([Question(SPEED, one, 0.03)])] == ["equivalent within ± 3 %"]


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["normal", "skewed", "diverging"])
@pytest.mark.parametrize(
    ("n", "studies"), [(5, 300), *(pytest.param(n, 1000, marks=pytest.mark.soak) for n in (5, 10, 20))]
)
@pytest.mark.parametrize("curve", [[0, 0, 0, 0, 0], [-4, -1, 0, -1, -4]], ids=["flat", "peaked"])
def test_equal_methods_that_are_tuned_are_hardly_ever_called_different(
    curve: list[float], n: int, studies: int, noise: str
) -> None:
    draw = np.random.default_rng(n)
    found = [tuned(draw, n, np.array(curve, float), noise)[FINAL.name].p for _ in range(studies)]
    error = {300: 0.025, 1000: 0.014}[studies]  # two standard errors of the simulation
    assert np.mean(np.array(found) <= 0.05) <= 0.055 + error


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["normal", "skewed", "diverging"])
@pytest.mark.parametrize("n", [5, *soak(10, 20)])
@pytest.mark.parametrize("curve", [[0, 0, 0], [-4, 0, -1]], ids=["flat", "peaked"])
def test_pairs_of_equal_methods_that_are_tuned_are_neither_different_nor_falsely_equivalent(
    curve: list[float], n: int, noise: str
) -> None:
    draw = np.random.default_rng(n)
    found = [tuned(draw, n, np.array(curve, float), noise, of_seed=0.9)[FINAL.name] for _ in range(300)]
    assert np.mean([one.p <= 0.05 for one in found]) <= 0.055 + 0.025
    # As if the methods differed by exactly the margin.
    shifted = [replace(one, value=one.value + 0.001).equivalence_p(0.001) for one in found]
    assert np.mean([p is not None and p <= 0.05 for p in shifted]) <= 0.055 + 0.025
    if noise == "normal":
        assert all(one.paired for one in found)


@pytest.mark.parametrize("paired", [False, True])
def test_a_choice_never_narrows_an_interval(paired: bool) -> None:
    """Arms that have their noise in common choose the same rate in most samples, and then hardly differ."""
    found = []
    for study in range(20):
        pair, choices = tuned_pair(np.random.default_rng(study), 10, np.zeros(3), "normal", of_rate=0.99)
        alone, chosen = (estimates(pair, paired, tuned)[FINAL.name] for tuned in (None, choices))
        found.append((alone.error or 0, chosen.error or 0))
        assert alone.value == chosen.value
    assert all(alone <= chosen for alone, chosen in found) and any(alone < chosen for alone, chosen in found)


def test_pairs_are_what_a_common_seed_is_for() -> None:
    paired, alone = (
        [
            tuned(np.random.default_rng(study), 10, np.array([-4.0, 0, -4]), "normal", of_seed)[FINAL.name]
            for study in range(20)
        ]
        for of_seed in (0.9, 0.0)
    )
    assert np.median([one.error for one in paired]) < 0.5 * np.median([one.error for one in alone])


@pytest.mark.slow
def test_shares_that_train_are_compared_by_fisher_and_newcombe(planted: Planted) -> None:
    spread = [0.0, 0.001, -0.001, 0.0005, -0.0005] * 4
    planted.runs([0.98 + one for one in spread[:11]] + [0.1] * 8 + [math.nan])
    planted.runs([0.98 + one for one in spread], accel="clip")
    (comparison,) = planted.section().comparisons
    shares = comparison.estimates["success"]
    assert shares.value == pytest.approx(0.45) and shares.p == pytest.approx(fisher_exact([[20, 0], [11, 9]]).pvalue)
    bounds = [proportion_confint(count, 20, method="wilson") for count in (20, 11)]
    assert shares.low == pytest.approx(0.45 - math.hypot(1 - bounds[0][0], bounds[1][1] - 0.55))
    assert comparison.verdicts["success"].words == "trains more often"
    assert comparison.verdicts["accuracy"].words == "no verdict: one side trains less often"
    assert (
        comparison.estimates["final_accuracy"].n == (20, 11)
        and abs(comparison.estimates["final_accuracy"].value) < 1e-3
    )
    assert line(comparison)[3] == "trains more often (p = 0.001)"
    rows = csv.DictReader(io.StringIO(export.as_csv(planted.report())))
    (row,) = [row for row in rows if row["measure"] == "success"]
    assert (row["verdict"], row["against"]) == ("trains more often", "difference")
    assert float(row["value"]) == shares.value and float(row["p_adjusted"]) == comparison.verdicts["success"].p
    (flag,) = [flag for flag in comparison.flags if flag.aspect == "success"]
    assert flag.sentence.startswith("20 of 20 runs of clip train and 11 of 20 of none (final accuracy at least 4")
    assert ": +45 points [" in flag.sentence


@pytest.mark.parametrize(("share", "margin"), [(0.75, 0.2), (0.8, 0.2), (0.5, 0.2), (0.45, 0.5)])
def test_so_many_runs_show_a_share_that_is_larger_by_the_margin(share: float, margin: float) -> None:
    runs = runs_needed(share, margin)
    counts = np.arange(runs + 1)
    chances = np.outer(binom.pmf(counts, runs, share + margin), binom.pmf(counts, runs, share))
    likely = np.argwhere(chances > 1e-7)
    shown = (chances[a, b] * (fisher_exact([[a, runs - a], [b, runs - b]]).pvalue <= 0.05) for a, b in likely)
    assert 0.8 <= sum(shown) <= 0.9


@pytest.mark.parametrize("survivors", [0.95, 0.98, 0.985])
def test_where_one_side_trains_more_often_accuracy_has_no_verdict(planted: Planted, survivors: float) -> None:
    spread = [0.0, 0.001, -0.001, 0.0005, -0.0005] * 2
    planted.runs([survivors + one for one in spread] + [0.1] * 10)
    planted.runs([0.98 + one for one in spread * 2], accel="clip")
    (comparison,) = planted.section().comparisons
    assert comparison.verdicts["success"].words == "trains more often"
    assert comparison.verdicts["accuracy"].words == "no verdict: one side trains less often"
    ((row,),) = [forest.rows for forest in forests([comparison])]
    assert row.entry.verdict.startswith("trains more often") and row.entry.kind == "", "the dot is of accuracies"


def test_more_comparisons_do_not_let_one_of_survivors_through(planted: Planted) -> None:
    """14 of 20 against 20 of 20 has p = 0.02, and 0.06 after correction for three."""
    spread = [0.0, 0.001, -0.001, 0.0005, -0.0005] * 4
    planted.runs([0.98 + one + seed / 1e5 for seed, one in enumerate(spread[:14])] + [0.1 + k / 1e3 for k in range(6)])
    for norm in ("1.0", "2.0", "5.0"):
        planted.runs(
            [0.99 + one + seed / 1e5 + float(norm) / 1e6 for seed, one in enumerate(spread)],
            accel="clip", accel__clip__max_norm=norm,
        )  # fmt: skip
    for comparison in planted.section().comparisons:
        assert comparison.verdicts["success"].words == "inconclusive"
        assert comparison.accuracy.words == "no verdict: one side trains less often"


def test_a_run_that_ended_for_its_gradients_did_not_train(planted: Planted) -> None:
    planted.runs([0.98, 0.981, 0.979])
    planted.runs([0.98, 0.981, 0.979], accel="clip")
    planted.run(0.1, 3, "FAILED", tag_diverged="true")
    planted.run(0.1, 3, "FAILED", accel="clip")
    shares = planted.section().comparisons[0].estimates["success"]
    assert shares.n == (3, 4) and shares.value == 0.25, "a full disk says nothing about a method"


def test_of_a_seed_the_latest_run_counts_whether_it_trained_or_diverged(planted: Planted) -> None:
    good = [0.98, 0.981, 0.979, 0.982, 0.978]
    planted.runs(good)
    planted.runs(good, accel="clip")
    for seed in range(5):
        planted.run(0.1, seed, "FAILED", tag_diverged="true", accel="clip")
    (comparison,) = planted.section().comparisons
    assert (len(comparison.pair.method.trained), comparison.pair.method.attempts) == (0, 5)
    assert comparison.verdicts["accuracy"].words == "no verdict: too few train"
    assert comparison.accuracy.words == "trains less often", "no run at all says no less than some"
    planted.runs(good, accel="clip")
    (comparison,) = planted.section().comparisons
    assert len(comparison.pair.method.trained) == 5 and comparison.pair.method.least == pytest.approx(0.491)


def test_a_diverged_run_that_was_resumed_and_finished_trains(planted: Planted) -> None:
    planted.runs([0.98, 0.981, 0.979])
    planted.runs([0.98, 0.981, 0.979], accel="clip", tag_diverged="true")
    assert "success" not in planted.section().comparisons[0].estimates
    planted.run(0.1, 3, "RUNNING", accel="clip", tag_diverged="true")
    assert planted.section().comparisons[0].pair.method.attempts == 3


@pytest.mark.parametrize(
    ("other", "aspect", "sentence"),
    [
        ({"tag_processor": "B"}, "machine", "processor is A and B"),
        ({"tag_processor": "A (family 25, AVX2)"}, "machine", "processor is A and A (family 25, AVX2)"),
        ({"tag_processor": "A", "tag_kernels": "x"}, "machine", "kernels is unknown and x"),
    ],
)
def test_other_machines_get_no_verdict_on_speed(planted: Planted, other: dict, aspect: str, sentence: str) -> None:
    speeds = [100.0, 101.0, 99.0]
    for seed, speed in enumerate(speeds):
        target = {
            "train__target_accuracy": "0.9",
            "metric_samples__to_target": 1000.0,
            "metric_time__to_target_s": 1000 / speed,
            "metric_time__train_s": 3000 / speed,
        }
        times = {"metric_throughput__samples_per_sec": speed, **target}
        planted.run(0.98 + seed / 1000, seed, tag_processor="A", **times)
        planted.run(0.98 + seed / 1000, seed, accel="clip", **times, **other)
    (comparison,) = planted.section().comparisons
    assert comparison.verdicts["speed"].verdict is Verdict.OTHER_MACHINE
    assert not {"samples_per_sec", "train_s"} & {*comparison.estimates} and "final_accuracy" in comparison.estimates
    assert "seconds_to_target" not in comparison.targets and "samples_to_target" in comparison.targets
    assert sentence in {flag.aspect: flag.sentence for flag in comparison.flags}[aspect]


def test_other_seeds_mixed_commits_and_missing_speeds_are_flagged(planted: Planted) -> None:
    for seed in range(3):
        speed = {"metric_throughput__samples_per_sec": 100.0 + seed} if seed else {}
        commit = {"tag_git_commit": "ab"[seed % 2] * 40}
        planted.run(0.98 + seed / 1000, seed, **commit, **speed)
        planted.run(0.98 + seed / 1000, seed + 5, accel="clip", **commit, **speed)
    (comparison,) = planted.section().comparisons
    said = {flag.aspect: flag.sentence for flag in comparison.flags}
    assert "seed is 5 to 7 for clip and 0 to 2 for none" in said["seeds"]
    assert "aaaaaaaaaaaa and bbbbbbbbbbbb for clip" in said["commit"]
    assert "samples/s is known of 2 of 3 runs" in said["missing"]


def test_a_seed_that_diverged_again_is_no_further_evidence(planted: Planted) -> None:
    planted.runs([0.98, 0.981, 0.979, 0.98, 0.982])
    planted.runs([0.98, 0.981, 0.979, 0.98], accel="clip")
    for _ in range(8):
        planted.run(0.1, 4, "FAILED", accel="clip", tag_diverged="true")
    (comparison,) = planted.section().comparisons
    assert comparison.estimates["success"].n == (5, 5)
    assert comparison.verdicts["success"].verdict is Verdict.INCONCLUSIVE


def test_without_accuracies_nothing_is_said_about_training(planted: Planted) -> None:
    for accel in ("none", "clip"):
        for seed in range(3):
            speed = {"metric_throughput__samples_per_sec": 100.0 + seed}
            planted.run(None, seed, accel=accel, **speed)  # type: ignore[arg-type]
    (comparison,) = planted.section().comparisons
    assert "success" not in comparison.estimates and comparison.verdicts["accuracy"].words == "not measured"


def test_a_pair_at_a_worse_rate_than_the_best_is_still_compared(planted: Planted) -> None:
    planted.runs([0.98, 0.981, 0.979], optimizer__lr="0.1")
    for accel in ("none", "clip"):
        planted.runs([0.92, 0.925, 0.915], accel=accel)
    (comparison,) = planted.section().comparisons
    assert "success" not in comparison.estimates and comparison.estimates["final_accuracy"].n == (3, 3)


def test_seeds_that_repeat_each_other_are_one(planted: Planted) -> None:
    """As a seed that has no effect: five copies of one result are one result."""
    for seed in range(5):
        same = {"metric_train__loss": 0.25, "metric_time__train_s": 10.0 + seed}
        planted.run(0.98, seed, **same)
        planted.run(0.97 + seed / 1000, seed, accel="clip", metric_train__loss=0.2 + seed / 100)
    section = planted.section()
    assert [len(method.runs) for method in section.found.methods] == [1, 5]
    assert section.comparisons[0].verdicts["accuracy"].words == "n too small"
    assert "4 further runs repeat the results of others" in "\n".join(section.notes)


def test_pairs_that_could_not_be_made_are_told(planted: Planted) -> None:
    planted.runs([0.98, 0.981, 0.979])
    planted.runs([0.98, 0.981, 0.979], accel="clip")
    (comparison,) = planted.report(paired=True).sections[0].comparisons
    assert "are not compared by seed" in {flag.aspect: flag.sentence for flag in comparison.flags}["paired"]


def test_a_report_says_of_what_kind_its_intervals_are(planted: Planted) -> None:
    planted.runs([0.980, 0.983, 0.977, 0.981, 0.979])
    planted.runs([0.981, 0.985, 0.978, 0.983, 0.979], accel="clip")
    for paired, kind in ((True, "pairs of the same seed"), (False, "Welch")):
        assert f"95 % intervals ({kind});" in section_text(planted.report(paired=paired).sections[0])


def test_an_inconclusive_comparison_says_what_it_could_have_seen(planted: Planted) -> None:
    planted.runs([0.980, 0.983, 0.977, 0.981, 0.979])
    planted.runs([0.981, 0.982, 0.978, 0.980, 0.979], accel="clip")
    section = planted.section()
    assert section.comparisons[0].verdicts["accuracy"].verdict is Verdict.INCONCLUSIVE
    (note,) = [note for note in section.notes if "inconclusive" in note]
    assert note.startswith("accuracy of clip (without clipping) is inconclusive: n = 5 shows 0.4")
    assert "to decide within ± 0.1 points takes about n = " in note


def test_a_margin_of_the_users_own(planted: Planted) -> None:
    from msaccel.compare import report

    planted.runs([0.980, 0.983, 0.977, 0.981, 0.979])
    planted.runs([0.981, 0.982, 0.978, 0.980, 0.979], accel="clip")
    found = report.build(planted.find(), margin=0.01)
    assert found.sections[0].comparisons[0].verdicts["accuracy"].words == "equivalent within ± 1 points"


def test_a_resnet_on_cifar10_has_a_margin_of_its_own(planted: Planted) -> None:
    given = {"model__name": "resnet50", "model__depth": "20", "data__name": "cifar10", "tag_data": "cifar10"}
    planted.runs([0.890, 0.893, 0.887, 0.891, 0.889], **given)
    planted.runs([0.891, 0.892, 0.888, 0.890, 0.889], accel="clip", **given)
    (comparison,) = planted.section().comparisons
    assert comparison.verdicts["accuracy"].words == "equivalent within ± 1 points"
    assert forests([comparison])[0].rows[0].entry.kind == "same"


def test_simulated_ranks_get_none(planted: Planted) -> None:
    assert [v.words for v in decide([Question(SPEED, None, refused=Verdict.SIMULATED)])] == ["no verdict: simulated"]
