"""The walk of docs/ui.md through MLflow's comparison page, step by step, with its pictures.

The pictures are of the sweep that the page names; without MSACCEL_PICTURES two runs of seconds do.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from msaccel.files import ROOT
from tests.tracking.ui.conftest import PICTURES, Ui, close_ui, open_ui
from tests.tracking.ui.test_ui import ASSISTANT_AWAY

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SWEEP = (
    "accel=none,accum,clip optimizer.lr=0.02,0.1,0.5 model=mlp optimizer=sgd train.epochs=1 data.val_fraction=0.0833333"
)
LARGEST = 200_000  # bytes of a picture
# Every axis of a plot of parallel coordinates has its name as a text.
AXES = ".js-plotly-plot .parcoords .axis-title"


@pytest.fixture(scope="module")
def walked(browser: Browser, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    """The UI on the runs of the walk, which are not trained where there is no browser."""
    if PICTURES:
        folder = tmp_path_factory.mktemp("walk")
        store = f"sqlite:///{folder}/mlflow.db"
        places = [f"tracking.uri={store}", f"tracking.artifacts={folder}/artifacts", f"hydra.sweep.dir={folder}/jobs"]
        subprocess.run([sys.executable, "run.py", "-m", *SWEEP.split(), *places], cwd=ROOT, check=True, timeout=900)
    else:
        store = request.getfixturevalue("store")  # of the session: as an argument it would be there before the browser
    opened = open_ui(store)
    yield opened
    close_ui(opened)


def photograph(page: Page, path: Path) -> None:
    page.mouse.move(0, 0)  # away from the plots, which answer the mouse
    part = {"x": 0, "y": 0, "width": 1556, "height": 640}
    page.screenshot(path=path, style=ASSISTANT_AWAY, animations="disabled", clip=part)  # type: ignore[arg-type]
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


@pytest.mark.slow
def test_the_walk(page: Page, walked: Ui, pictures: Path) -> None:
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
