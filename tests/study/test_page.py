"""The answers of studies in words, in the README's table, and as a page that a browser sorts and filters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import scipy.stats

from msaccel.__main__ import main
from msaccel.compare.baselines import BaselinePair
from msaccel.compare.measures import SECONDS, SUPERIORITY
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.runs import Record
from msaccel.compare.statistics import Estimate, difference
from msaccel.compare.verdicts import Verdict
from msaccel.files import ROOT
from msaccel.study import plots, protocol, results, sentences
from msaccel.study.answers import Answer
from msaccel.study.claims import Claim, ClaimSummary, claims, corrected, summary
from msaccel.study.page import page
from msaccel.study.protocol import Hypothesis, StudyPart
from tests.study.planted import plant, train
from tests.study.simulated import PART, Simulated, peak
from tests.tracking.ui.conftest import browser, pictures, screenshot  # noqa: F401

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

HYPOTHESIS = Hypothesis("clip", "none", "better", 0.5)
SOME = difference(dict(enumerate([0.90, 0.91, 0.93])), dict(enumerate([0.90, 0.92, 0.91])))
SENTENCES = {
    Verdict.BETTER: "clip reaches a higher accuracy than none: +0.33 points",
    Verdict.WORSE: "Do not use it for accuracy: clip reaches a lower accuracy than none, +0.33 points",
    Verdict.FASTER: "clip trains faster than none",
    Verdict.SLOWER: "Do not use it for speed",
    Verdict.MORE_OFTEN: "clip trains more often than none",
    Verdict.LESS_OFTEN: "Do not use it for stability",
    Verdict.SUPERIOR: "clip beats none in most pairs of runs: ",
    Verdict.INFERIOR: "Do not use it: clip loses to none in most pairs of runs, ",
    Verdict.EQUIVALENT: "No difference that matters: clip and none are equivalent within ± 0.5 points.",
    Verdict.SMALL: "No difference that matters: clip and none differ by less than 0.5 points: ",
    Verdict.INCONCLUSIVE: (
        "We cannot tell whether clip reaches a higher accuracy than none: n = 3 and 3, visible from 4.1"
    ),
    Verdict.NARROW: "We cannot tell whether clip reaches a higher accuracy than none: a best rate lies at an end of",
    Verdict.UNEQUAL_SHARES: (
        "We cannot tell whether clip reaches a higher accuracy than none: – train; to decide, declare"
    ),
    Verdict.NOT_TRAINED: "Not trained yet: whether clip reaches a higher accuracy than none.",
    Verdict.NOT_TUNABLE: "We cannot tell whether clip reaches a higher accuracy than none (no verdict: 0.5 points).",
    Verdict.UNTUNED: (
        "We cannot tell whether clip reaches a higher accuracy than none (no verdict: tuned on too few seeds)."
    ),
}


def claim(
    verdict: Verdict,
    estimate: Estimate | None = None,
    method: str = "clip",
    holds: bool | None = None,
    perhaps_inside: bool = False,
) -> Claim:
    hypothesis = Hypothesis(method, "none", "equivalent", 0.5)
    part = StudyPart("A part", {method: [], "none": []}, [0.1], 7.0, hypothesis=hypothesis)
    answer = Answer(verdict, holds, estimate, detail="0.5 points", perhaps_inside=perhaps_inside)
    return Claim("clips", part, hypothesis, answer, "LeNet on MNIST", {}, 3)


@pytest.mark.parametrize("verdict", SENTENCES)
def test_what_we_would_tell_follows_from_the_answer(verdict: Verdict) -> None:
    said = sentences.advice(HYPOTHESIS, Answer(verdict, estimate=SOME, detail="0.5 points"))
    assert said.startswith(SENTENCES[verdict]) and said.endswith(".") and "{" not in said


def test_an_effect_is_told_in_margins() -> None:
    assert claim(Verdict.BETTER, Estimate(0.01, 0.005, 0.02, 0.01, (5, 5))).in_margins == (2, (1, 4))
    slower = Estimate(1 / 1.005, None, None, None, (5, 5), is_ratio=True)
    assert claim(Verdict.SLOWER, slower).in_margins == (pytest.approx(-1), None)
    assert claim(Verdict.NOT_TRAINED).in_margins is None
    likely = Estimate(0.51, 0.49, 0.53, 0.01, (9, 9), is_probability=True)
    assert claim(Verdict.SUPERIOR, likely).in_margins == (pytest.approx(2), (pytest.approx(-2), pytest.approx(6)))


def test_a_probability_is_told_with_the_shares_that_train() -> None:
    likely = Estimate(0.935, 0.832, 0.99, 0.001, (20, 20), is_probability=True, error=0.03, freedom=19)
    hypothesis = replace(HYPOTHESIS, endpoint=SUPERIORITY, margin=10)
    runs = [
        Record("", "", "", "FINISHED", 0, 1, {"optimizer.lr": "0.1"}, {"seed": str(n)}, {"final/accuracy": end})
        for n, end in enumerate([0.9] * 7 + [0.1] * 3)
    ]
    pair = BaselinePair(*(MethodRuns({"accel": name}, runs, least=0.45) for name in ("clip", "none")), "declared", ())
    assert sentences.advice(hypothesis, Answer(Verdict.SUPERIOR, True, likely, pair)) == (
        "clip beats none in most pairs of runs: 93.5 % of pairs [83.2, 99.0]; 7 of 10 against 7 of 10 train."
    )
    assert sentences.effect(hypothesis, Answer(Verdict.SUPERIOR, True, likely, pair)) == (
        "93.5 % of pairs [83.2, 99.0], margin ± 10 points of probability, rates 0.1 and 0.1"
    )
    undecided = sentences.advice(
        hypothesis, Answer(Verdict.INCONCLUSIVE, None, replace(likely, value=0.6, error=0.1), pair)
    )
    assert undecided == (
        "We cannot tell whether clip beats none in most pairs of runs: n = 20 and 20, visible from 30 points of "
        "probability on; to decide within ± 10 points of probability takes about 173 a side."
    )
    even = sentences.claimed(replace(hypothesis, kind="equivalent"))
    assert even == "beats none in half of all pairs of runs, within ± 10 points of probability"


@pytest.mark.parametrize(
    ("trained", "decides"),
    [
        (6, "to show 20 points more takes about 91 a side"),
        (10, "no room for 20 points more; to decide, declare a rate at which more runs fail"),
    ],
)
def test_an_undecided_share_says_what_would_decide(trained: int, decides: str) -> None:
    ends = [0.9] * trained + [0.1] * (10 - trained)
    runs = [
        Record("", "", "", "FINISHED", 0, 1, {}, {"seed": str(seed)}, {"final/accuracy": end})
        for seed, end in enumerate(ends)
    ]
    sides = [MethodRuns({"accel": name}, runs, least=0.45) for name in ("clip", "none")]
    found = Answer(Verdict.INCONCLUSIVE, pair=BaselinePair(*sides, "declared", ()))
    said = sentences.advice(replace(HYPOTHESIS, endpoint="trains", margin=20), found)
    assert said.startswith("We cannot tell whether clip trains more often than none: ") and said.endswith(f"{decides}.")


def test_the_summary_counts_claims_and_groups_what_was_found() -> None:
    found = [
        claim(Verdict.BETTER, holds=False),
        claim(Verdict.SLOWER, method="accum", holds=False),
        claim(Verdict.INCONCLUSIVE),
    ]
    assert summary(found) == ClaimSummary(
        "0 of 3 claims are confirmed, 2 refuted, 1 undecided.",
        {
            "Better": ["clip reaches a higher accuracy than none (LeNet on MNIST)"],  # nothing was estimated
            "Worse": ["accum trains slower than none (LeNet on MNIST)"],
            "Undecided": ["clip is as accurate as none, within ± 0.5 points (LeNet on MNIST)"],
        },
        "",
    )
    said = summary([claim(Verdict.EQUIVALENT, holds=True), claim(Verdict.NOT_TRAINED), claim(Verdict.NOT_TRAINED)])
    assert said.counts == "1 of 1 claims is confirmed, 0 refuted, 0 undecided; 2 more are not trained yet."
    assert said.findings == {
        "No difference that matters": ["clip and none, equivalent within ± 0.5 points (LeNet on MNIST)"]
    }


def test_claims_are_one_family() -> None:
    """Each of these claims is looked at three times."""
    found = [
        claim(Verdict.BETTER, Estimate(0.01, 0.005, 0.02, p, (5, 5)), holds=True, method=name)
        for name, p in {"sure": 0.002, "late": 0.009, "later": 0.012}.items()
    ]
    assert corrected([*found, claim(Verdict.NOT_TRAINED)]) == [*map(pytest.approx, (0.018, 0.054, 0.054)), None]
    said = summary(found)
    assert said.findings == {
        "Better": [
            "sure reaches a higher accuracy than none (LeNet on MNIST +1.00 points)",
            "late reaches a higher accuracy than none (LeNet on MNIST +1.00 points†)",
            "later reaches a higher accuracy than none (LeNet on MNIST +1.00 points†)",
        ]
    }
    slower = {SECONDS.name: Estimate(1.5, 1.4, 1.6, 0.001, (5, 5), is_ratio=True)}
    on_mlp = replace(found[0], workload="MLP on MNIST", times=slower)
    again = [*found[:2], on_mlp, replace(found[2], hypothesis=found[0].hypothesis)]
    assert summary(again).findings == {
        "Better": [
            "sure reaches a higher accuracy than none (LeNet on MNIST +1.00 points, "
            "MLP on MNIST +1.00 points at 1.50 × the time, LeNet on MNIST +1.00 points†)",
            "late reaches a higher accuracy than none (LeNet on MNIST +1.00 points†)",
        ]
    }
    assert said.note.startswith("† Undecided if all claims are judged as one family")
    assert said.counts == (
        "3 of 3 claims are confirmed, 0 refuted, 0 undecided; "
        "after correction for testing all of them 1 stay confirmed and 0 refuted."
    )
    assert summary(found[:2]).note == ""
    assert results.overview(found).splitlines()[2].count("n = 5 and 5 (p = 0.018)") == 1


def test_what_makes_no_difference_may_cost_time() -> None:
    same = claim(Verdict.EQUIVALENT, holds=True)
    for low, said in ((1.1, " at 1.20 × the time"), (0.9, "")):  # an interval around 1 shows no cost
        times = {SECONDS.name: Estimate(1.2, low, 1.3, 0.001, (5, 5), is_ratio=True)}
        assert summary([replace(same, times=times)]).findings == {
            "No difference that matters": [f"clip and none, equivalent within ± 0.5 points (LeNet on MNIST{said})"]
        }


def test_shares_that_train_are_told_with_the_rate_of_the_claim() -> None:
    one = claim(Verdict.MORE_OFTEN, Estimate(0.55, 0.29, 0.74, 0.001, (20, 20)), holds=True)
    one = replace(one, hypothesis=replace(one.hypothesis, endpoint="trains", rate=0.2, margin=20))
    assert summary([one]).findings == {
        "Better": ["clip trains more often than none, both at rate 0.2 (LeNet on MNIST – runs)"]
    }


@pytest.mark.parametrize(
    ("value", "verdict", "holds"), [(0.0, Verdict.EQUIVALENT, True), (0.02, Verdict.BETTER, False)]
)
def test_the_p_of_a_claim_is_that_of_what_was_found(value: float, verdict: Verdict, holds: bool) -> None:
    estimate = Estimate(value, value - 0.002, value + 0.002, 0.5, (5, 5), error=0.001, freedom=8)
    one = claim(verdict, estimate, holds=holds)
    inside = scipy.stats.t.cdf((abs(value) - 0.005) / 0.001, 8)
    assert one.p == pytest.approx(3 * (inside if holds else 1 - inside)) and one.p < 0.01


def test_a_difference_that_may_be_inside_the_margin_is_told_with_its_own_p() -> None:
    estimate = Estimate(-0.006, -0.0105, -0.0015, 0.02, (5, 5), error=0.002, freedom=8)
    one = claim(Verdict.WORSE, estimate, perhaps_inside=True)
    assert one.p == pytest.approx(3 * 0.02)
    assert "**worse**: undecided, perhaps within the margin" in results.overview([one])
    assert summary([one]).findings == {
        "Worse": ["clip reaches a lower accuracy than none (LeNet on MNIST -0.60 points, perhaps within the margin†)"]
    }
    assert ", perhaps within the margin." in sentences.advice(one.hypothesis, one.answer)


def test_a_claim_without_runs_is_not_trained_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Simulated(tmp_path, monkeypatch, PART, peak)
    (one,) = claims([study.runner])
    assert not one.trained and one.workload == "MLP on synthetic data" and one.costs == "–"
    lines = results.overview([one]).splitlines()
    assert lines[0] == "Not trained yet (`python -m msaccel study NAME` trains one):"
    said = f"{one.hypothesis.method} is as accurate as plain, within ± 0.1 points (MLP on synthetic data)"
    assert lines[2:] == [f"- [simulated](experiments/simulated/README.md): {said}"]
    assert plots.differences([one]) is None and plots.rate_panels(study.runner) == []
    assert "; 1 more is not trained yet." in page([one], [], "Made by a test.")


def test_claims_that_are_not_trained_are_a_list_below_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = (
        claim(Verdict.BETTER, Estimate(0.01, 0.005, 0.02, p, (5, 5)), holds=True, method=name)
        for name, p in {"first": 0.002, "last": 0.009}.items()
    )
    table, said, rest = results.overview([first, claim(Verdict.NOT_TRAINED, method="later"), last]).split("\n\n")
    assert [line.split()[1] for line in table.splitlines()[2:]] == ["first", "last"]
    assert "(p = 0.012)" in table and "(p = 0.027)" in table, "each row has its own p"
    assert said.startswith("Not trained yet") and rest.count("\n") == 0 and ": later is as accurate" in rest
    untrained, trained = (folder / "studies" for folder in (tmp_path / "a", tmp_path / "b"))
    studies = []
    for folder in (untrained, trained):
        folder.mkdir(parents=True)
        studies.append(Simulated(folder, monkeypatch, PART, peak))
    studies[1].runner.run()
    assert [one.trained for one in claims([study.runner for study in studies])] == [True, False]


def test_names_are_text_and_effects_off_the_axis_are_marked() -> None:
    far = Estimate(-0.2, -0.25, -0.15, 0.001, (5, 5))
    text = page([claim(Verdict.WORSE, far, method="<b>bold</b>"), claim(Verdict.BETTER, SOME)], [], "Made by a test.")
    assert "<b>" not in text and "&lt;b&gt;bold" in text
    assert text.count('class="dot down below"') == 1 and 'data-value="-0.2"' in text


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A repository whose two studies are trained, written by the command."""
    root = tmp_path_factory.mktemp("repository")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "EXPERIMENTS", root / "experiments")
        train(plant(root))
        store = ["--tracking-uri", f"sqlite:///{root}/mlflow.db"]
        assert main(["study", "clips", "sums", "--no-training", "--into", str(root / "README.md"), *store]) == 0
        yield root


@pytest.mark.slow
def test_the_readme_and_the_words_come_from_the_store(root: Path) -> None:
    top, _, table = (root / "README.md").read_text().partition("<!-- /summary -->")
    assert "**In short:** 2 of 4 claims are confirmed, 1 refuted, 1 undecided." in top and "![Effects" in top
    assert "| **Better** | " in top and "| **Worse** | " in top and "| **Undecided** | " in top
    rows = [row.split(" | ") for row in table.splitlines() if row.startswith("| ")][2:]
    assert [row[2].replace("**", "") for row in rows] == [
        "equivalent within ± 0.5 points: confirmed",
        "trains more often: confirmed",
        "inconclusive: undecided",
        "slower: refuted",
    ]
    assert [row[4] for row in rows] == [f"{n} of {n} against {m} of {n}" for n, m in ((5, 5), (6, 0), (5, 5), (5, 5))]
    assert rows[2][3] == "-0.18 points [-1.08, +0.72], margin ± 0.1 points, rates 0.01 and 0.01"
    assert rows[2][5].startswith("time 1.429 × [1.428, 1.430], memory 1.013 ×"), (
        "the time is of the part that measures speed"
    )
    assert re.search(r"visible from 1\.2 points on; to decide within ± 0\.1 points takes about \d+ a side", rows[2][6])
    said = (root / "docs/answer.md").read_text().splitlines()
    assert len(said) == 2 + len(rows) and "No difference that matters: clipped and plain are equivalent" in said[1]
    assert (root / "docs/pictures/studies.png").stat().st_size > 10_000


def test_rounds_of_speed_are_no_runs_that_failed_to_train(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--tracking-uri", f"sqlite:///{root}/mlflow.db"]
    assert main(["compare", "--experiment", "sums", "--output", str(root / "report"), *store]) == 0
    capsys.readouterr()
    report = json.loads((root / "report/report.json").read_text())
    (found,) = report["sets"]
    assert found["title"].endswith("1 epochs") and [method["n"] for method in found["methods"]] == [5, 5]


@pytest.mark.slow
def test_a_study_without_runs_in_the_store_answers_by_its_published_ones(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/answer.md"):
        (tmp_path / name).write_text((root / name).read_text().replace("a side", "a desk"))
    (published_runs := root / "experiments/sums/runs.csv").rename(kept := tmp_path / "runs.csv")
    command = ["study", "all", "--no-training", "--into", str(tmp_path / "README.md")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "EXPERIMENTS", root / "experiments")
        assert main([*command, "--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db"]) == 0
        said = capsys.readouterr().out.splitlines()[-3:-1]
        assert said == [
            "clips: no finished run in this store, so its answers are those of its published runs",
            "sums: not trained yet",
        ]
        assert (
            "2 of 2 claims are confirmed, 0 refuted, 0 undecided; 2 more are not"
            in (tmp_path / "README.md").read_text()
        )
        kept.rename(published_runs)
        assert main([*command, "--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db"]) == 0
    for name in ("README.md", "docs/answer.md", "docs/studies.html"):
        assert (tmp_path / name).read_text() == (root / name).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_the_published_page_begins_with_its_forest_plot(browser: Browser, width: int) -> None:  # noqa: F811
    page = browser.new_page(viewport={"width": width, "height": 900}, offline=True)
    page.goto((ROOT / "docs/studies.html").as_uri())
    bands = page.locator(".forest .margin")
    first = bands.first.bounding_box()
    assert bands.count() > 30 and first and first["y"] < 900
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_sorted_and_filtered(browser: Browser, root: Path, pictures: Path, width: int) -> None:  # noqa: F811
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
    page = context.new_page()
    said, asked = list[str](), list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((root / "docs/studies.html").as_uri())
    screenshot(page, pictures / f"studies-{width}.png", full_page=True)
    assert said == [] and {url for url in asked if not url.startswith("data:")} == {page.url}
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    band, dot = (page.locator(where).first.bounding_box() for where in (".forest .margin", ".forest .dot"))
    assert band and dot and band["y"] < 900 and band["width"] > 10, "the forest plot comes first"
    assert band["x"] < dot["x"] < band["x"] + band["width"], "what is equivalent is inside its margin"

    column = page.locator("tbody td:nth-child(5)")
    heading = page.locator("th", has=page.get_by_text("in margins"))
    heading.locator("button").click()
    assert numbers(column) == sorted(numbers(column)) and numbers(column)[0] < -10
    heading.locator("button").click()
    assert numbers(column) == sorted(numbers(column), reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    for _ in range(2):
        page.get_by_role("button", name="time").click()
        assert page.locator("tbody td:nth-child(7)").last.text_content() == "–", "what is missing is last either way"

    page.get_by_label("Workload").select_option("LeNet on MNIST")
    assert page.locator("output").text_content() == "2 of 4 claims"
    for kind in ("tbody tr", ".forest .row"):
        assert page.locator(kind).count() == 4 and page.locator(f"{kind}:visible").count() == 2
    assert page.locator("figure").count() == 2 and page.locator("figure:visible").count() == 0
    page.get_by_label("Workload").select_option("")
    page.get_by_label("Study").select_option("clips")
    assert page.locator("figure:visible").count() == 2
    context.close()


def numbers(cells: Locator) -> list[float]:
    return [float(text) for text in cells.all_text_contents()]
