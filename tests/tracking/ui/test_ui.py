"""The links that `make ui` prints, opened in a browser, and the server behind them."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from mlflow import MlflowClient

from msaccel.errors import UserError
from msaccel.files import ROOT
from msaccel.tracking import ui as tracking_ui
from tests.tracking.ui.conftest import DIFFERS, PICTURES, SERVE, Ui, close_ui, free_port, open_ui, screenshot

if TYPE_CHECKING:
    from playwright.sync_api import Page

RUNS = {f"baseline{DIFFERS} s0", f"accum{DIFFERS} s0"}
ASSISTANT_AWAY = "[data-assistant-ui] { visibility: hidden }"
# MLflow draws a run twice, smoothed over a faint original; its colour, by the run's ID, may be that of another run.
LINES = "lines => new Set(lines.map(line => line.getAttribute('d'))).size"
CURVES = "plots => plots.flatMap(plot => plot.data.filter(one => one.name && one.x.length > 1).map(one => one.name))"

SWEEP = (
    "accel=none,accum,clip optimizer.lr=0.02,0.1,0.5 model=mlp optimizer=sgd train.epochs=1 data.val_fraction=0.0833333"
)
LARGEST = 200_000  # bytes of a picture
# Every axis of a plot of parallel coordinates has its name as a text.
AXES = ".js-plotly-plot .parcoords .axis-title"


def assert_both_curves(page: Page, metric: str) -> None:
    """One plot of the metric is on the page, with a curve of each run and its name in the legend."""
    from playwright.sync_api import expect

    for run in RUNS:
        expect(page.get_by_text(f"{run} ({metric})")).to_be_visible()
    plot = page.locator(".js-plotly-plot")
    expect(plot).to_have_count(1)
    expect(plot.locator(".scatterlayer .trace path.js-line").first).to_be_visible()
    assert set(plot.evaluate_all(CURVES)) == RUNS
    assert plot.locator(".scatterlayer .trace path.js-line").evaluate_all(LINES) == 2


def follow(page: Page, name: str) -> None:
    """Clicks the first link of that name where it stands: late parts of a page move it under a mouse, or replace it."""
    page.get_by_role("link", name=name).first.dispatch_event("click")


def open_charts(page: Page, ui: Ui) -> None:
    from playwright.sync_api import expect

    page.goto(ui.link("compareRunsMode=CHART"))
    for run in RUNS:
        expect(page.get_by_role("link", name=run)).to_be_visible()


@pytest.mark.slow
def test_charts_link_lands_on_the_answer(page: Page, ui: Ui) -> None:
    """Loss and accuracy over epochs, the final accuracies and the speeds, the baseline in grey; all else folded."""
    from playwright.sync_api import expect

    open_charts(page, ui)
    expect(page.get_by_text("Judges")).to_have_count(0)  # a room of the GenAI view
    expect(page.get_by_text("Does it help?")).to_be_visible()
    plots = page.locator(".js-plotly-plot")
    expect(plots).to_have_count(4)
    axes = plots.evaluate_all("plots => plots.map(plot => plot.layout.xaxis.title?.text)")
    assert axes[:2] == ["epoch", "epoch"]
    assert set(plots.evaluate_all(CURVES)) == RUNS, "the sweep's own run has none"
    strokes = page.locator(".scatterlayer .trace path.js-line").evaluate_all(
        "lines => [...new Set(lines.map(line => line.style.stroke))]"
    )
    assert len(strokes) == 2 and "rgb(140, 140, 140)" in strokes, strokes


@pytest.mark.slow
def test_the_pages_of_a_run_and_of_its_sweep_begin_with_the_answer(page: Page, ui: Ui, pictures: Path) -> None:
    """The description of a run has its result, difference and command; that of the sweep the ranking."""
    from playwright.sync_api import expect

    open_charts(page, ui)
    follow(page, f"accum{DIFFERS} s0")
    expect(page.get_by_role("heading", name=f"accum{DIFFERS} s0")).to_be_visible()
    expect(page.get_by_text("final accuracy").first).to_be_visible()
    expect(page.get_by_text("points against the baseline (same micro-batch)")).to_be_visible()
    screenshot(page, pictures / "run.png", style=ASSISTANT_AWAY, animations="disabled")
    follow(page, "sweep accel=none,accum")
    expect(page.get_by_text("Methods by their mean final accuracy")).to_be_visible()
    for run in RUNS:
        expect(page.get_by_role("link", name=run)).to_be_visible()


@pytest.mark.slow
@pytest.mark.soak  # pages of MLflow's alone, which change only with its version
def test_two_selected_runs_are_compared(page: Page, ui: Ui) -> None:
    from playwright.sync_api import expect

    open_charts(page, ui)
    for run in RUNS:
        page.get_by_role("row").filter(has_text=run).get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Comparing 2 Runs from 1 Experiment")).to_be_visible()
    for run in RUNS:
        expect(page.get_by_text(run, exact=True).first).to_be_visible()
    follow(page, "train/loss")
    assert_both_curves(page, "train/loss")


@pytest.mark.slow
def test_printed_comparison_links(page: Page, ui: Ui) -> None:
    from playwright.sync_api import expect

    page.goto(ui.link("/#/metric?"))
    assert_both_curves(page, "train/loss")
    page.goto(ui.link("/#/compare-runs?"))
    expect(page.get_by_role("heading", name="Comparing 2 Runs from 1 Experiment")).to_be_visible()


@pytest.mark.slow
def test_picture_of_the_comparison(page: Page, ui: Ui, pictures: Path) -> None:
    """Loss and accuracy of both runs on one page: the README's picture."""
    from playwright.sync_api import expect

    open_charts(page, ui)
    page.get_by_role("button", name="Toggle sidebar").click()
    plots = page.locator(".js-plotly-plot")
    expect(plots).to_have_count(4)
    assert set(plots.evaluate_all(CURVES)) == RUNS
    page.mouse.wheel(0, -1000)
    page.get_by_role("heading", name="Runs").hover()  # away from the charts, which answer the mouse
    screenshot(page, pictures / "comparison.png", style=ASSISTANT_AWAY, animations="disabled")
    assert (pictures / "comparison.png").stat().st_size < 300_000


def photograph(page: Page, path: Path) -> None:
    page.mouse.move(0, 0)  # away from the plots, which answer the mouse
    part = {"x": 0, "y": 0, "width": 1556, "height": 640}
    screenshot(page, path, style=ASSISTANT_AWAY, animations="disabled", clip=part)  # type: ignore[arg-type]
    assert path.stat().st_size < LARGEST


def add(page: Page, place: int, name: str) -> None:
    """Chooses one more of the parameters (place 0) or metrics (1) of the parallel coordinates."""
    from playwright.sync_api import expect

    listed = page.locator(".rc-virtual-list:visible")
    expect(listed).to_have_count(0)  # the one before may take a while to close
    page.locator("input[role=combobox][id^=dubois-select]").nth(place).click(force=True)
    option = listed.locator(f"[title='{name}']")
    for _ in range(100):  # the list holds only what is in sight
        if option.count():
            break
        listed.hover()
        page.mouse.wheel(0, 120)
        page.wait_for_timeout(50)
    option.click()
    page.keyboard.press("Escape")


@pytest.fixture
def walked(ui: Ui, tmp_path: Path) -> Iterator[Ui]:
    """The UI on the runs of docs/ui.md's walk; without MSACCEL_PICTURES two runs of seconds do."""
    if not PICTURES:
        yield ui
        return
    store = f"sqlite:///{tmp_path}/mlflow.db"
    places = [f"tracking.uri={store}", f"tracking.artifacts={tmp_path}/artifacts", f"hydra.sweep.dir={tmp_path}/jobs"]
    subprocess.run([sys.executable, "run.py", "-m", *SWEEP.split(), *places], cwd=ROOT, check=True, timeout=900)
    opened = open_ui(store)
    yield opened
    close_ui(opened)


@pytest.mark.slow
@pytest.mark.soak  # pages of MLflow's alone, which change only with its version
def test_the_walk(page: Page, walked: Ui, pictures: Path) -> None:
    """That of docs/ui.md through the comparison page, step by step, with its pictures."""
    from playwright.sync_api import expect

    page.goto(walked.link("compareRunsMode=CHART"))
    expect(page.get_by_role("link", name=re.compile("baseline .*s0")).first).to_be_visible()
    page.get_by_label("Select all runs").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Comparing")).to_be_visible()
    page.get_by_role("button", name="Toggle sidebar").click()

    page.get_by_role("button", name="Clear All").click()
    for place, name in ((0, "accel"), (0, "optimizer.lr"), (1, "final/accuracy")):
        add(page, place, name)
    expect(page.locator(AXES)).to_have_text(["accel", "optimizer.lr", "final/accuracy"])
    photograph(page, pictures / "parallel.png")

    page.get_by_role("tab", name="Scatter Plot").click()
    for axis, name in (("x", "accel"), ("y", "final/accuracy")):
        page.locator(f"#{axis}-axis-selector").click()
        page.get_by_role("option", name=name, exact=True).click()
    plot = page.locator(".js-plotly-plot")
    expect(plot.locator(".xtitle")).to_have_text("accel")
    expect(plot.locator(".ytitle")).to_have_text("final/accuracy")
    assert {"none", "accum"} <= set(plot.evaluate("plot => plot.data.flatMap(points => points.x)"))
    photograph(page, pictures / "scatter.png")

    for name in ("Visualizations", "Run details"):
        page.get_by_role("button", name=name).click()
    for table in ("Parameters", "Metrics"):
        page.get_by_label(f"{table} - Show diff only").click()
    expect(page.get_by_role("rowheader", name="accel", exact=True).first).to_be_visible()
    expect(page.get_by_role("rowheader", name="data.name", exact=True)).to_have_count(0)
    photograph(page, pictures / "differences.png")


@pytest.mark.slow
def test_links_to_a_server_start_nothing(ui: Ui) -> None:
    command = [sys.executable, "-c", SERVE, f"http://127.0.0.1:{ui.port}/", str(ui.port)]  # though the port is taken
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=400).stdout
    assert printed.split() == " ".join(ui.printed[:-1]).split()


def test_store_without_runs(tmp_path: Path) -> None:
    missing = f"sqlite:///{tmp_path}/mlflow.db"
    with pytest.raises(UserError, match=r"train first: python run\.py"):
        tracking_ui.serve(missing, free_port())
    assert list(tmp_path.iterdir()) == []
    MlflowClient(missing).create_experiment("without runs")
    with pytest.raises(UserError, match=r"train first: python run\.py"):
        tracking_ui.serve(missing, free_port())


@pytest.mark.parametrize("taken", [0, 70_000])
def test_port_out_of_range(tmp_path: Path, taken: int) -> None:
    with pytest.raises(UserError, match=f"--port={taken} is out of range"):
        tracking_ui.serve(f"sqlite:///{tmp_path}/mlflow.db", taken)


def test_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(UserError, match=f"--port={taken} cannot be used .* another one, for example --port="):
            tracking_ui.serve(f"sqlite:///{tmp_path}/mlflow.db", taken)


def test_server_that_does_not_come_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    client.create_run(client.create_experiment("lenet-mnist"), run_name="none-cpu-s0")
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such module\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(UserError, match="did not come up"):
        tracking_ui.serve(f"sqlite:///{tmp_path}/mlflow.db", free_port())
    assert "no such module" in capfd.readouterr().err


@pytest.mark.slow
def test_server_listens_on_loopback_alone_and_leaves_nothing_behind(ui: Ui) -> None:
    """The last test of the UI, which it ends."""
    try:
        processes = psutil.Process(ui.process.pid).children(recursive=True)
        assert processes
        listening = {
            connection.laddr
            for process in processes
            for connection in process.net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == {("127.0.0.1", ui.port)}
    finally:
        code = close_ui(ui)
    assert code == 0
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
