"""Names, tags and parameters in a store that somebody else may write to: read, shown and exported without harm."""

from __future__ import annotations

import csv
import io
import logging
import math
import re
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from mlflow.entities import Metric, RunTag

from msaccel.__main__ import main
from msaccel.compare.render import export, html, markdown
from msaccel.errors import UserError, printable
from msaccel.launch import log
from msaccel.sweeps import status
from msaccel.tracking import ui_links
from tests.compare.conftest import Planted

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\n‮# x"
SCRIPT = "<script>alert(1)</script>"
LINKS = "[x](javascript:alert(1)) ![x](http://a/b) `c` **d** | e"
DIGITS = "9" * 5000
TEXTS = {"escapes": ESCAPES, "script": SCRIPT, "links": LINKS, "markup": "[/red] [bold]:smile:", "digits": DIGITS}


def assert_printable(text: str) -> None:
    assert [character for character in text if not character.isprintable() and character != "\n"] == []


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_command_shows_it_without_harm(
    planted: Planted, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = {"model__init": text, "optimizer__lr": text, "tag_git_commit": text, "tag_sweep_id": text}
    hostile |= {"tag_job_folder": f"host:{text}", "tag_updates": text, "tag_heartbeat": text, "tag_changed": text}
    for seed in (0, 1):
        planted.run(0.9, seed, **hostile)
        planted.run(0.8, seed, **hostile, accel="accum", accel__accum__steps="4", train__batch_size=text)
    planted.run(0.8, 2, status="RUNNING", **hostile)
    planted.run(0.8, 3, status="FAILED", accel=text, model__name=text)
    for found in planted.client.search_runs([planted.experiment]):
        planted.client.set_tag(found.info.run_id, "mlflow.runName", text)
    planted.client.rename_experiment(planted.experiment, text[:200])
    store = ["--tracking-uri", planted.uri]
    for command in (["compare", "--output", str(tmp_path / "report")], ["status"], ["status", "--json"]):
        assert main([*command, *store]) == 0
        said = capsys.readouterr()
        assert said.out and not said.err
        assert_printable(said.out)
    assert_printable("\n".join(ui_links.overview(planted.client, "http://host")))
    for file in (tmp_path / "report").iterdir():
        assert_printable(file.read_text())
    page, document = ((tmp_path / "report" / name).read_text() for name in ("report.html", "report.md"))
    assert "<script" not in page and "<script" not in re.sub(r"\\<", "", document)
    assert not re.search(r"(?<!\\)\]\(|(?<!\\)`|(?<!\\)\*\*", document)


def test_a_table_of_markdown_keeps_its_columns(planted: Planted) -> None:
    for accel, values in (("none", "a"), ("clip", "b|c\\|d\\")):
        planted.runs([0.9, 0.91], accel=accel, model__init="normal", optimizer__lr=values)
    for line in markdown.document(planted.report()).splitlines():
        if line.startswith("| clip"):
            assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) >= 5
            assert r"b\|c\\\|d\\ |" in line


@pytest.mark.parametrize("uri", ["http://name:secret@host:5000/", "sqlite:///mlflow.db", "/mlruns"])
def test_runs_link_to_their_pages_on_a_server_alone(planted: Planted, uri: str) -> None:
    planted.run(0.9)
    planted.run(status="FAILED")
    answer = planted.report()
    (finished,), (failed,) = answer.runs, answer.unfinished
    hostile = replace(answer, unfinished=[replace(failed, run_id='"><script>', name=SCRIPT)])
    page = html.page(hostile, {}, 1, "", uri)
    links = re.findall(r'<a href="(http[^"]*)">([^<]*)</a>', page)
    runs = f"http://host:5000/#/experiments/{planted.experiment}/runs"
    expected = [(f"{runs}/{finished.run_id}", finished.run_id), (f"{runs}/%22%3E%3Cscript%3E", escape(SCRIPT))]
    assert links == (expected if uri.startswith("http") else [])
    assert "secret" not in page and "<script" not in page


@pytest.mark.parametrize("start", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\tx", "\rx"])
def test_no_cell_of_a_csv_file_is_a_formula(planted: Planted, start: str) -> None:
    planted.runs([0.9, 0.91], model__name=start)
    planted.runs([0.88, 0.89], model__name=start, accel="=cmd|'/c calc'!A0")
    text = export.as_csv(planted.report())
    rows = list(csv.DictReader(io.StringIO(text)))
    words = [cell for row in rows for key, cell in row.items() if key in ("set", "method", "baseline", "verdict")]
    assert rows and not [word for word in words if word.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert any(row["method"].startswith("'=cmd") for row in rows)
    differences = [float(row["value"]) for row in rows if row["value"]]
    assert min(differences) < 0, "numbers stay numbers"


def test_values_that_are_no_numbers_are_not_computed_with(planted: Planted) -> None:
    nothing = {"train__max_updates": "1e999", "train__batch_size": "nan"}
    planted.runs([0.9, math.nan, 0.8], **nothing)
    planted.runs([0.9, math.inf, 0.8], **nothing, accel="accum", accel__accum__steps="-inf")
    answer = planted.report()
    assert all(math.isfinite(value) for run in answer.runs for value in run.metrics.values())
    assert export.as_json(answer)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("size", [1e29, 1e31, 1e99, 1e300, 1e-29, 1e-99, 1e-320])
def test_sizes_that_nothing_measured_has_overflow_nowhere(
    planted: Planted, size: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("throughput/samples_per_sec", "time/train_s", "memory/peak_mb", "time/to_target_s", "samples/to_target")
    for seed in range(3):
        sizes = {f"metric_{name.replace('/', '__')}": size * (1 + seed / 10) for name in names}
        target = {"train__target_accuracy": "0.5", "tag_updates": "300"}
        planted.run(size * (1 + seed / 10), seed, **sizes, **target)
        planted.run(size * (2 + seed / 10), seed, **sizes, **target, accel="clip", optimizer__lr=str(size))
    for options in ([], ["--output", str(tmp_path / "report")]):
        assert main(["compare", *options, "--tracking-uri", planted.uri]) == 0
    said = capsys.readouterr()
    assert not said.err and not re.search(r"\b(inf|nan)\b|\d{40}", said.out)


@pytest.mark.parametrize("updates", [DIGITS, "²", "-5", "1e9", ""])
def test_a_count_of_updates_that_is_none(planted: Planted, updates: str) -> None:
    run = planted.run(0.9, status="RUNNING", tag_accel="none", tag_updates=updates)
    logged = [Metric("time/train_s", math.inf, int(time.time() * 1000), 10)]
    planted.client.log_batch(run, logged, tags=[RunTag("heartbeat", "0001-01-01T00:00:00+23:00")])
    (found,) = status.find(planted.client, None, 10)
    assert found.updates is None and found.seconds_left is None
    assert main(["status", "--tracking-uri", planted.uri]) == 0


def test_messages_and_errors_are_printable(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    log.set_up()
    logging.getLogger("msaccel.somewhere").warning("%s: waits\n  and waits", ESCAPES)
    logging.getLogger("msaccel.somewhere").info("%s", ESCAPES)

    def refuse(*given: object) -> None:
        raise UserError(ESCAPES)

    monkeypatch.setattr("msaccel.cli.commands.ui.run", refuse)
    assert main(["ui"]) == 2
    said = capsys.readouterr()
    assert "waits\n  and waits\n" in said.err and r"\x1b]0;owned\x07" in said.out
    assert_printable(said.out + said.err)


DAMAGE = {
    "a status that is none": "UPDATE runs SET status = 'NONSENSE'",
    "no start": "UPDATE runs SET start_time = NULL",
    "a word for a start": "UPDATE runs SET start_time = 'yesterday'",
    "a word for a last value": "UPDATE latest_metrics SET value = 'abc'",
    "a word for an update": "UPDATE latest_metrics SET step = 'abc'",
    "a tag without a value": "UPDATE tags SET value = NULL",
    "bytes for a parameter": "UPDATE params SET value = X'ff00' WHERE key <> 'accel'",
    "bytes for the name of an experiment": "UPDATE experiments SET name = X'ff00' WHERE name = 'lenet-mnist'",
    "no table": "DROP TABLE latest_metrics",
}


def damage(store: Planted, statement: str) -> None:
    with closing(sqlite3.connect(store.uri.removeprefix("sqlite:///"))) as database:
        database.execute("PRAGMA ignore_check_constraints = 1")
        database.execute(statement)
        database.commit()


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("command", ["status", "compare"])
def test_a_damaged_store_is_named(
    planted: Planted, command: str, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    planted.run(0.9, tag_accel="none")
    damage(planted, statement)
    assert main([command, "--tracking-uri", planted.uri]) == 2
    said = capsys.readouterr()
    assert re.fullmatch(rf"[^\n]* in {planted.uri} cannot be read \([^\n]+\); [^\n]+\.\n", said.err) and not said.out


def test_damaged_curves_are_named(planted: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = planted.run(0.9, curve=True)
    damage(planted, "UPDATE metrics SET value = 'abc' WHERE key = 'train/loss'")
    assert main(["compare", "--output", str(tmp_path / "report"), "--tracking-uri", planted.uri]) == 2
    assert f"train/loss of run {run} in {planted.uri} cannot be read" in capsys.readouterr().err


def test_what_is_printable_stays_as_it_is() -> None:
    assert printable("Größe ± 0.1 × 漢字 \\n") == "Größe ± 0.1 × 漢字 \\n"
    assert printable("a\nb\x1b‮") == r"a\nb\x1b\u202e"
