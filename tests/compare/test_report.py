"""The report: right words for planted effects, files that parse back, a card, a sweep that outlives its report."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from msaccel.__main__ import main
from msaccel.compare.render import card, export, format, markdown, terminal
from msaccel.config.overrides import override
from msaccel.errors import UserError
from msaccel.launch.job import Result
from msaccel.sweeps import finish
from msaccel.sweeps.folder import SweepCommand, SweepFolder, SweepRecord
from msaccel.tracking.status import FINISHED

from .conftest import ENVIRONMENT, Planted

Plausible = Callable[..., Planted]


def test_planted_effects_get_the_right_words(plausible: Plausible) -> None:
    section = plausible().section()
    words = {
        comparison.pair.name: [comparison.verdicts[question].words for question in ("accuracy", "speed")]
        for comparison in section.comparisons
    }
    assert words == {"same micro-batch": ["better", "slower"], "same global batch": ["better", "slower"]}
    micro = section.comparisons[0].estimates
    assert micro["final_accuracy"].value == pytest.approx(0.015, abs=2e-3)
    assert micro["samples_per_sec"].value == pytest.approx(2 / 3) and micro["forward_equivalents"].value == 1
    assert section.comparisons[0].targets["seconds_to_target"].ratio.value == pytest.approx(1.5, rel=1e-2)


def test_bytes_between_ranks_are_a_cost(planted: Planted) -> None:
    planted.runs([0.90, 0.91, 0.92], metric_comm__bytes=8e6)
    planted.runs([0.905, 0.915, 0.911], accel="localsgd", metric_comm__bytes=1e6)
    section = planted.section()
    assert section.comparisons[0].estimates["sent_mb"].value == pytest.approx(1 / 8)
    assert "sent MB" in format.heads(section.found) and "8.0 ± 0.0" in format.rows(section.found)[0]


def test_no_effect_and_too_few_seeds(planted: Planted) -> None:
    planted.runs([0.90, 0.91, 0.92])
    planted.runs([0.905, 0.915, 0.911], accel="clip")
    planted.runs([0.99, 0.99], accel="adasum")
    words = [comparison.verdicts["accuracy"].words for comparison in planted.section().comparisons]
    assert words == ["n too small", "inconclusive"]
    assert planted.section().comparisons[1].verdicts["speed"].words == "not measured"


def test_json_holds_everything(plausible: Plausible) -> None:
    report = plausible().report()
    (found,) = json.loads(export.as_json(report))["sets"]
    assert found["conditions"]["budget"] == {"budget": "3 epochs"} and len(found["methods"]) == 3
    for exported, comparison in zip(found["comparisons"], report.sections[0].comparisons, strict=True):
        assert found["methods"][exported["baseline"]]["settings"] == comparison.pair.baseline.settings
        assert exported["verdicts"]["accuracy"]["words"] == "better"
    assert list(found["methods"][0]["measures"]["final_accuracy"]["by_seed"]) == ["0", "1", "2", "3", "4"]
    assert [run["status"] for run in json.loads(export.as_json(report))["unfinished"]] == ["FAILED"]


def test_csv_reads_back(plausible: Plausible) -> None:
    rows = list(csv.DictReader(io.StringIO(export.as_csv(plausible().report()))))
    assert set(rows[0]) == set(export.FIELDS)
    final = [row for row in rows if row["measure"] == "final_accuracy"]
    assert [row["baseline_name"] for row in final] == ["", "", "same micro-batch", "same global batch"]
    assert float(final[2]["low"]) < float(final[2]["value"]) < float(final[2]["high"])
    assert final[2]["verdict"] == "better" and float(final[2]["p_adjusted"]) >= float(final[2]["p"])


def test_csv_says_of_each_method_alone_why_it_is_refused(planted: Planted) -> None:
    values = [0.9, 0.91, 0.92]
    planted.runs(values)
    planted.runs(values, accel="accum", accel__accum__steps="4")
    planted.runs(values, accel="clip", precision="fp16")
    rows = list(csv.DictReader(io.StringIO(export.as_csv(planted.report()))))
    why = {row["method"].partition(",")[0]: row["refused"] for row in rows if row["measure"] == "final_accuracy"}
    assert why["none"] == "" and "there is no baseline of the same global batch; train it: " in why["accum"]
    assert why["clip"].startswith("Refused, another precision: ") and "accum" not in why["clip"]


def test_markdown_tables_are_rectangular(plausible: Plausible) -> None:
    text = markdown.document(plausible().report())
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) == 3
    for block in blocks:
        assert len({line.count("|") for line in block}) == 1 and set(block[1]) <= set("|- ")
    assert "better (p" in text and " points [" in text and "accum-cpu-s5 FAILED" in text
    assert markdown.table([["a|b"], ["c"]]).splitlines()[0] == "| a\\|b |"


def test_numbers_as_they_are_shown() -> None:
    assert format.average([0.90, 0.92, 0.94], "{:.2%}") == "92.00% ± 2.00%"
    assert format.average([0.5], "{:.1f}") == "0.5" and format.average([], "{:.1f}") == "–"
    assert format.lowest([0.9, 0.1], "{:.0%}") == "10%"


def test_a_card_keeps_its_text_and_gets_its_tables(plausible: Plausible, tmp_path: Path) -> None:
    planted = plausible()
    for run in planted.find():
        planted.client.log_text(run.run_id, ENVIRONMENT, "environment.txt")
    path = tmp_path / "README.md"
    begin, end = card.markers("results")
    path.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    arguments = ["compare", "--tracking-uri", planted.uri, "--into", str(path), "--output", str(tmp_path / "report")]
    for _ in range(2):
        assert main(arguments) == 0
    text = path.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert text.count("| accum, accel.accum.steps=4") == 0 and text.count("| same micro-batch | +1.") == 1
    origin = (
        "aaaaaaaaaaaa; a processor that is not recorded; a machine, 2 processors; mindspore==2.10.0, numpy==1.26.4."
    )
    assert "15 runs" in text and origin in text
    assert {file.suffix for file in (tmp_path / "report").iterdir()} == {".html", ".md", ".json", ".csv"}


@pytest.mark.parametrize("kind", ["folder", "pipe", "no text", "link to itself"])
def test_a_card_that_is_no_text_file_is_one_sentence(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "card.md"
    make = {
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "no text": lambda: path.write_bytes(b"\xff\xfe"),
        "link to itself": lambda: path.symlink_to(path),
    }
    make[kind]()
    with pytest.raises(UserError, match=r"^.* cannot be updated \(.*\); results are written into a Markdown file\.$"):
        card.write_into(path, "table")
    assert [left.name for left in tmp_path.iterdir()] == ["card.md"]


def test_a_card_has_the_processor_alone_where_the_environment_of_a_run_was_removed(planted: Planted) -> None:
    planted.runs([0.9, 0.91], tag_processor="an AMD", metric_time__train_s=150.0)
    origin = "2 runs, 5 minutes of training; commit aaaaaaaaaaaa; an AMD."
    assert card.text(planted.client, planted.report()).endswith(origin)


def test_a_batch_is_not_tuned(planted: Planted) -> None:
    """Methods at different batches are no baselines of each other."""
    planted.runs([0.9, 0.91])
    with pytest.raises(
        UserError, match=r"--tune=train\.batch_size would pair .*; write --tune optimizer\.lr, and compare"
    ):
        planted.report(tuned="train.batch_size")


@pytest.mark.parametrize("key", ["accel", "seed", "learning_rate", "", "\x1b[2J"])
def test_a_key_that_cannot_be_tuned_is_one_sentence(planted: Planted, key: str) -> None:
    planted.runs([0.9, 0.91])
    with pytest.raises(UserError, match=r"is no setting of these runs to tune; write --tune optimizer\.lr\.$"):
        planted.report(tuned=key)


def test_a_card_without_markers_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no lines"):
        card.write_into(tmp_path / "missing.md", "table")


def test_a_sweep_prints_its_comparison_and_where_it_is(
    planted: Planted, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ids = [planted.run(0.9 + seed / 100, seed, accel=accel) for accel in ("none", "clip") for seed in range(3)]
    results = [Result("a run", FINISHED, run_id, planted.uri) for run_id in ids]
    finish.report(results, SweepFolder(tmp_path / "one"), complete=True)
    printed = capsys.readouterr()
    assert "without clipping" in printed.out and printed.err == ""
    assert Path(printed.out.splitlines()[-1].removeprefix("report: ")).is_file()


def test_a_server_that_has_no_run_compares_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the first of several servers knows the runs of a sweep's jobs."""
    finish.report(
        [Result("a run", FINISHED), Result("b run", "FAILED", message="why")], SweepFolder(Path()), complete=False
    )
    assert capsys.readouterr().err == "b run: FAILED: why\n"


def test_a_sweep_does_not_fail_for_its_report(
    planted: Planted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "show", lambda report: 1 / 0)
    finish.report(
        [Result("a run", FINISHED, planted.run(), planted.uri), Result("b run", "FAILED", message="why")],
        SweepFolder(Path("one")),
        complete=False,
    )
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("the report was not made (ZeroDivisionError") and first.endswith(
        "try python -m msaccel compare --sweep one"
    )
    assert second == "b run: FAILED: why"


def test_commands_of_a_sweep_name_its_store(
    planted: Planted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = [override("tracking.uri", planted.uri), "tracking.artifacts='/d/a b'"]
    sweep = SweepFolder(tmp_path / "my sweep")
    sweep.path.mkdir()
    record = SweepRecord(SweepCommand(store, {}, planted.uri), ["accel=clip", *store], "2026-11-27T00:00:00+00:00", 1)
    (sweep.path / "sweep.json").write_text(json.dumps(asdict(record)))
    results = [Result("a run", FINISHED, planted.run(accel="clip", accel__clip__max_norm="1.0"), planted.uri)]
    finish.report(results, sweep, complete=False)
    said = capsys.readouterr().out.replace(" \\\n", " ")
    assert {*store} <= {*shlex.split(said[said.index("python run.py") :])}
    monkeypatch.setattr(terminal, "show", lambda report: 1 / 0)
    finish.report(results, sweep, complete=False)
    again = f"try python -m msaccel compare --sweep 'my sweep' --tracking-uri {planted.uri}\n"
    assert capsys.readouterr().err.endswith(again)
