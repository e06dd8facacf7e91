"""The page's beginning: the conclusion, made from verdicts alone, the forest plot and the words that are explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from msaccel.accel import methods
from msaccel.compare.measures import COST, MEASURES
from msaccel.compare.render import forest as drawn
from msaccel.compare.render import markdown, write
from msaccel.compare.render.conclusion import conclude
from msaccel.compare.render.forest import Entry, forests
from msaccel.compare.render.glossary import TERMS, terms
from msaccel.compare.verdicts import Verdict

from .conftest import Planted
from .test_report import Plausible


def test_the_smallest_p_leads(plausible: Plausible) -> None:
    found = conclude(plausible().report())
    assert found.sentence == "accum, train.batch_size=32 ends at a better accuracy than its baseline."
    assert (found.number, found.unit) == ("+2.00", "points")
    assert found.facts == [
        "95 % interval [+1.88, +2.11], n = 5 and 5 seeds, better (p < 0.001).",
        "The baseline: none, train.batch_size=128, same global batch. Both on lenet, mnist, CPU 1 × 1, fp32, 3 epochs.",
        "Speed: slower (p < 0.001), 0.500 × [0.477, 0.524] samples/s.",
        "Read with care: 1 reservation about it below.",
        "This is the one with the smallest p of 2 comparisons (accuracy: 2 better; speed: 2 slower).",
    ]


def test_what_was_not_shown_or_not_compared_is_said(planted: Planted) -> None:
    planted.runs([0.90, 0.91, 0.92])
    assert conclude(planted.report()).sentence == "Nothing is compared: there are only baselines here."
    planted.runs([0.9, 0.9], accel="adasum")
    found = conclude(planted.report())
    assert found.sentence == "adasum against its baseline: n too small."
    assert found.facts[0] == "n = 2 and 3 seeds, n too small." and found.number == "-1.00"
    planted.runs([0.905, 0.915, 0.911], accel="clip")
    found = conclude(planted.report())
    assert found.sentence == "clip against its baseline: inconclusive."
    assert "2 comparisons (accuracy: 1 n too small, 1 inconclusive; speed: 2 not measured)" in found.facts[-1]


def test_where_fewer_train_on_one_side_that_is_the_conclusion(planted: Planted) -> None:
    spread = [0.0, 0.001, -0.001, 0.0005, -0.0005] * 2
    planted.runs([0.98 + one for one in spread] + [0.1] * 10)
    planted.runs([0.98 + one for one in spread * 2], accel="clip")
    planted.runs([0.98 + one for one in spread] + [0.1] * 10, accel="adasum")
    report = planted.report()
    found = conclude(report)
    assert found.sentence == "clip trains more often than its baseline."
    assert (found.number, found.unit) == ("+50.00", "points of the share that trains")
    assert found.facts[0].endswith("n = 20 and 20 seeds, trains more often (p < 0.001).")
    assert "(accuracy: 1 equivalent within ± 0.1 points, 1 trains more often; speed:" in found.facts[-1]
    assert not any("Not every run trains" in fact for fact in found.facts)
    (accuracy,) = forests(report.sections[0].comparisons)
    assert [row.entry.verdict.partition(" (")[0] for row in accuracy.rows] == [
        "equivalent within ± 0.1 points",
        "trains more often",
    ]


def test_a_method_without_its_baseline_is_no_conclusion(planted: Planted) -> None:
    planted.runs([0.9, 0.91, 0.92], accel="clip")
    assert conclude(planted.report()).sentence == "Nothing is compared: no method has its baseline here."
    assert "\n\nNothing is compared" in markdown.document(planted.report())


def test_markdown_begins_with_the_conclusion(plausible: Plausible) -> None:
    lines = markdown.document(plausible().report()).splitlines()
    assert lines[2] == "accum, train.batch_size=32 ends at a better accuracy than its baseline."
    assert lines[4].startswith(r"+2.00 points. 95 % interval \[+1.88, +2.11\], n = 5 and 5 seeds")


def test_sets_with_a_comparison_come_first_and_numbers_by_size(planted: Planted) -> None:
    planted.runs([0.9, 0.91], accel="clip", model__init="a")
    planted.runs([0.9, 0.91], model__init="b")
    for limit in ("10.0", "2.0", "1e1", "adaptive"):
        planted.runs([0.9, 0.91], model__init="b", accel="clip", accel__clip__max_norm=limit)
    first, second = planted.report().sections
    limits = [comparison.pair.method.settings["accel.clip.max_norm"] for comparison in first.comparisons]
    assert limits == ["2.0", "10.0", "1e1", "adaptive"] and not second.comparisons


def test_a_forest_is_linear_and_holds_no_effect(plausible: Plausible) -> None:
    comparisons = plausible().section().comparisons
    accuracy, speed = forests(comparisons)
    for forest, measure in ((accuracy, "final_accuracy"), (speed, "samples_per_sec")):
        (at, label), (last, other) = forest.ticks[0], forest.ticks[-1]
        assert (at, last) == (0, pytest.approx(100)) and 0 <= forest.nothing <= 100

        def value(place: float, low: float = float(label), high: float = float(other)) -> float:
            return low + (high - low) * place / 100

        for row, comparison in zip(forest.rows, comparisons, strict=True):
            estimate = comparison.estimates[measure]
            scale = 1 if estimate.is_ratio else 100
            assert value(row.at) == pytest.approx(scale * estimate.value)
            assert row.interval and estimate.low and estimate.high
            assert value(row.interval[0]) == pytest.approx(scale * estimate.low)
            assert value(sum(row.interval)) == pytest.approx(scale * estimate.high)
        assert value(forest.nothing) == pytest.approx(scale * estimate.nothing)
    kinds = [[row.entry.kind for row in forest.rows] for forest in (accuracy, speed)]
    assert kinds == [["up", "up"], ["down", "down"]]


@pytest.mark.parametrize(("value", "beyond"), [(-0.1 - 0.2, ""), (0.1 + 0.2, ""), (9.0, "above"), (-9.0, "below")])
def test_an_effect_at_the_end_of_the_axis_is_not_beyond_it(value: float, beyond: str) -> None:
    """0.1 + 0.2 is more than 0.3 in floats, where the axis of such an effect ends."""
    found = drawn.forest("points", [Entry("clip", "none", value, None, "", "", "")], 0.0, "{:+g}", most=6.0)
    assert found.rows[0].beyond == beyond


def test_a_forest_without_intervals_or_differences(planted: Planted) -> None:
    planted.runs([0.9])
    planted.runs([0.9], accel="clip")
    (forest,) = forests(planted.section().comparisons)
    assert forest.rows[0].interval is None and forest.rows[0].at == pytest.approx(forest.nothing)
    assert forests([]) == []


@pytest.mark.parametrize(
    "word",
    [verdict.words().removesuffix("± ") for verdict in Verdict]
    + ["lowest", "±", "×", "p = 0.1"]
    + [measure.heading for measure in (*MEASURES, COST)],
)
def test_every_word_of_a_verdict_or_a_table_is_explained(word: str) -> None:
    assert terms(f"<td>{word}</td>")


def test_the_page_explains_the_words_that_it_uses_and_no_others(plausible: Plausible, tmp_path: Path) -> None:
    planted = plausible()
    page = write.write(planted.client, planted.report(), tmp_path / "report").read_text()
    body, _, words = page.partition('<dl class="terms">')
    explained = re.findall(r"<dt>(.*?)</dt>", words)
    assert {"baseline", "better", "slower", "p", "n", "points", "interval"} <= set(explained)
    assert not {"worse", "simulated", "fp16", "dimreduce", "inconclusive"} & set(explained)
    assert set(explained) == set(terms(body.partition("<body>")[2])) and set(explained) <= {*TERMS, *methods()}
