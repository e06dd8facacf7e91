"""The runs that count: tables, files and verdicts are of the same ones, and say how many trained."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from statistics import fmean

import pytest

from msaccel.compare.render import export, format, markdown, terminal, write
from msaccel.sweeps.parent_run import ranking

from .conftest import Planted

FAIR = [0.98, 0.981, 0.979, 0.98, 0.982]


@pytest.fixture
def store(planted: Planted) -> Planted:
    """Clipping loses one seed of five at chance, one to NaN; of adasum every seed diverges."""
    for seed, accuracy in enumerate(FAIR):
        speed = {"metric_throughput__samples_per_sec": 100.0 + seed}
        lost = {3: 0.1, 4: math.nan}.get(seed, accuracy + 0.001)
        planted.run(accuracy, seed, **speed)
        planted.run(lost, seed, accel="clip", **({"metric_throughput__samples_per_sec": 900.0} if seed > 2 else speed))
        planted.run(0.1, seed, "FAILED", accel="adasum", tag_diverged="true")
    return planted


def test_every_output_is_of_the_runs_that_train(store: Planted, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    report = store.report()
    (section,) = report.sections
    mean = fmean(FAIR[:3]) + 0.001
    clip = next(one for one in section.comparisons if one.pair.method.accel == "clip")
    assert clip.estimates["final_accuracy"].value == pytest.approx(mean - fmean(FAIR))
    assert clip.estimates["samples_per_sec"].n == clip.estimates["final_accuracy"].n == (3, 5)
    shown = ["trained 3 of 5", f"{mean:.2%} ± 0.10%", "98.00%", "101 ± 1"]
    place = section.found.methods.index(clip.pair.method)
    row = dict(zip(format.heads(section.found), format.rows(section.found)[place], strict=True))
    assert [row[head] for head in ("n", "final accuracy", "lowest", "samples/s")] == shown
    terminal.show(report)
    said = re.sub(r"[\s;]+", " ", capsys.readouterr().out)
    page = write.write(store.client, report, tmp_path / "report").read_text()
    for text in (said, markdown.document(report), page):
        assert all(one in text for one in shown) and "trained 0 of 5" in text
        assert "Not every run trains: numbers are of those that do, whose final accuracy is at least 49.1%" in text
    assert ["2", "none", "5"] in [row[:3] for row in ranking(report)]


def test_without_a_baseline_the_best_method_says_what_trains(planted: Planted) -> None:
    for seed, accuracy in enumerate(FAIR):
        planted.run(accuracy, seed, accel="clip", accel__clip__max_norm=1.0)
        planted.run(0.1 if seed > 2 else accuracy, seed, accel="clip", accel__clip__max_norm=5.0)
    section = planted.section()
    assert [format.count(method) for method in section.found.methods] == ["5", "trained 3 of 5"]
    (note,) = [note for note in section.notes if "Not every run trains" in note]
    assert note.endswith("whose final accuracy is at least 49.1%.")


def test_runs_at_chance_do_not_train_where_most_of_each_method_fail(planted: Planted) -> None:
    spread = [seed / 1e4 for seed in range(20)]
    for method, failed, accuracy in (("none", 11, 0.98), ("clip", 12, 0.985)):
        ends = [(0.1135 if seed < failed else accuracy) + spread[seed] for seed in range(20)]
        planted.runs(ends, accel=method)
    section = planted.section()
    assert [format.count(method) for method in section.found.methods] == ["trained 9 of 20", "trained 8 of 20"]
    (comparison,) = section.comparisons
    assert comparison.estimates["final_accuracy"].value == pytest.approx(0.005, abs=1e-3)


def test_with_two_classes_half_of_all_is_chance(planted: Planted) -> None:
    for method, ends in (("none", FAIR), ("clip", [*FAIR[:3], 0.5, 0.501])):
        planted.runs([end - 0.03 for end in FAIR] if method == "none" else ends, accel=method, model__classes="2")
    section = planted.section()
    assert [format.count(method) for method in section.found.methods] == ["5", "trained 3 of 5"]
    assert section.found.methods[0].least == pytest.approx((0.5 + 0.981) / 2)


def test_files_are_of_the_runs_that_train(store: Planted) -> None:
    report = store.report()
    rows = [row for row in csv.DictReader(io.StringIO(export.as_csv(report))) if row["measure"] == "final_accuracy"]
    found = {row["method"]: (row["n"], row["attempts"], row["mean"][:6]) for row in rows}
    assert found == {"none": ("5", "5", "0.9804"), "clip": ("3", "5", "0.981"), "adasum": ("0", "5", "")}
    (content,) = json.loads(export.as_json(report))["sets"]
    by_method = {one["settings"]["accel"]: one for one in content["methods"]}
    assert by_method["clip"]["trained"] == [0, 1, 2] and by_method["clip"]["least_accuracy"] == 0.491
    assert list(by_method["clip"]["measures"]["final_accuracy"]["by_seed"]) == ["0", "1", "2"]
    assert (by_method["adasum"]["n"], by_method["adasum"]["attempts"]) == (0, 5)


def test_a_method_of_which_every_seed_diverged_is_a_row_and_has_its_verdict(store: Planted) -> None:
    section = store.section()
    assert [format.count(method) for method in section.found.methods] == ["5", "trained 0 of 5", "trained 3 of 5"]
    lost = next(one for one in section.comparisons if one.pair.method.accel == "adasum")
    assert lost.estimates.keys() == {"success", "superiority"} and lost.estimates["success"].n == (5, 5)
    assert {question: verdict.words for question, verdict in lost.verdicts.items()} == {
        "success": "trains less often",
        "accuracy": "no verdict: too few train",
        "speed": "no verdict: too few train",
    }
    assert {flag.aspect for flag in lost.flags} == {"success"}


def test_it_stays_a_row_where_rates_are_chosen(planted: Planted) -> None:
    for rate in ("0.01", "0.1"):
        planted.runs(FAIR, optimizer__lr=rate)
        for seed in range(5):
            planted.run(0.1, seed, "FAILED", accel="clip", optimizer__lr=rate, tag_diverged="true")
    section = planted.section("optimizer.lr")
    assert [row[:3] for row in format.rows(section.found)] == [
        ["none", "0.01", "5"],
        ["clip", "0.01", "trained 0 of 5"],
    ]
    assert section.comparisons[0].verdicts["success"].words == "trains less often"


@pytest.mark.slow
@pytest.mark.parametrize("epochs", ["null", "3"])
def test_it_is_a_row_where_updates_are_the_budget(planted: Planted, epochs: str) -> None:
    """A run that diverged does not know how many epochs its updates would have been."""
    budget = {"train__max_updates": "100", "train__epochs": epochs}
    for seed, accuracy in enumerate(FAIR):
        planted.run(accuracy, seed, metric_epoch=0.0533, **budget)
        ended = {"status": "FAILED", "tag_diverged": "true", "metric_epoch": 0.01}
        planted.run(None, seed, accel="clip", **ended, **budget)  # type: ignore[arg-type]
        of_windows = budget | {"train__max_updates": "25"}
        planted.run(None, seed, accel="accum", accel__accum__steps="4", **ended, **of_windows)  # type: ignore[arg-type]
    (section,) = planted.report().sections
    assert {method.accel: format.count(method) for method in section.found.methods} == {
        "none": "5",
        "accum": "trained 0 of 5",
        "clip": "trained 0 of 5",
    }
    assert {one.verdicts["success"].words for one in section.comparisons} == {"trains less often"}


def test_diverged_runs_of_another_budget_are_no_row(planted: Planted) -> None:
    planted.runs(FAIR, train__max_updates="100", metric_epoch=0.0533)
    for seed in range(5):
        planted.run(0.1, seed, "FAILED", accel="clip", tag_diverged="true", train__max_updates="50")
    assert [method.accel for section in planted.report().sections for method in section.found.methods] == ["none"]


def test_a_baseline_that_fails_is_no_measure_of_training(planted: Planted) -> None:
    """The best baseline under the same conditions says what training is, also at a rate where none has its own."""
    planted.runs(FAIR)
    planted.runs([0.1] * 5, optimizer__lr="0.5")
    planted.runs(FAIR, optimizer__lr="0.5", accel="clip")
    (comparison,) = [one for one in planted.section().comparisons if not one.pair.differing]
    assert comparison.verdicts["success"].words == "trains more often"
    assert comparison.verdicts["accuracy"].words == "no verdict: too few train"


def test_a_baseline_that_mostly_fails_everywhere_is_no_measure_of_training(planted: Planted) -> None:
    planted.runs([0.1, 0.8, 0.11, 0.1, 0.09])
    planted.runs(FAIR, accel="clip")
    section = planted.section()
    assert [format.count(method) for method in section.found.methods] == ["trained 1 of 5", "5"]
    assert section.comparisons[0].estimates["success"].value == pytest.approx(0.8)


def test_without_a_finished_run_there_is_nothing_to_compare(planted: Planted) -> None:
    planted.run(0.1, 0, "FAILED", accel="clip", tag_diverged="true")
    with pytest.raises(Exception, match="there is no finished run to compare"):
        planted.report()


@pytest.mark.slow
def test_a_rate_at_which_most_runs_diverge_is_not_chosen(planted: Planted) -> None:
    for seed in range(10):
        for rate, accuracy in (("0.01", 0.95), ("0.02", 0.96), ("0.04", 0.99)):
            ended = {"status": "FAILED", "tag_diverged": "true"} if rate == "0.04" and seed > 2 else {}
            planted.run(accuracy + seed / 1e4, seed, optimizer__lr=rate, **ended)
    (section,) = planted.report("optimizer.lr").sections
    (method,) = section.found.methods
    assert method.number("optimizer.lr") == 0.02


def test_seeds_that_diverged_are_neither_chosen_nor_to_be_trained_again(store: Planted) -> None:
    for seed in range(5):
        ended = {"status": "FAILED", "tag_diverged": "true"} if seed > 2 else {}
        store.run(0.97 + seed / 1e3, seed, accel="accum", **ended)
    (section,) = store.report().sections
    accum = next(one for one in section.comparisons if one.pair.method.accel == "accum")
    assert not {"seeds", "unfinished"} & {flag.aspect for flag in accum.flags}


def test_a_run_that_diverged_has_the_budget_of_the_other_seeds(planted: Planted) -> None:
    for seed in range(5):
        ended = {"status": "FAILED", "tag_diverged": "true"} if seed > 2 else {}
        planted.run(0.97 + seed / 1e3, seed, train__max_updates="100", train__epochs="null", **ended)
    (section,) = planted.report().sections
    (method,) = section.found.methods
    assert (len(method.trained), method.attempts) == (3, 5)
