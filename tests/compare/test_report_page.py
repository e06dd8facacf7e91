"""The report in a browser without network: no error, nothing asked, nothing cut off at phone or desktop width."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from msaccel.compare.render import write
from tests.tracking.ui.conftest import browser, pictures, screenshot  # noqa: F401

from .conftest import empty, plant_plausible

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Request

WIDTHS = (390, 1280)


@pytest.fixture(scope="module")
def report_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    store = plant_plausible(empty(folder), curve=True)
    store.runs([0.9, 0.91], curve=True, train__epochs="2")  # another set, with plots of its own
    store.runs([0.9, 0.92], curve=True, train__epochs="2", accel="clip")
    return write.write(store.client, store.report(), folder / "report")


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_curves_can_be_smoothed(browser: Browser, report_page: Path, pictures: Path, width: int) -> None:  # noqa: F811
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(report_page.as_uri())
    loss = page.locator("figure", has=page.get_by_text("Training loss over updates")).first
    curve = loss.locator("[id*='-curve']").first
    measured, average = curve.locator("path").first, curve.locator(".average")
    before = measured.get_attribute("d")
    efold = float(loss.locator("svg").get_attribute("data-efold"))
    assert page.locator(".smoothing").count() == 2 and page.locator(".average").count() == 0
    page.locator(".smoothing input").first.fill("0.6")
    screenshot(page, pictures / f"report-smoothed-{width}.png", full_page=True)
    assert page.locator("output").first.text_content() == "0.6"
    assert measured.get_attribute("d") == before and measured.evaluate("one => one.style.opacity") == "0.25"
    assert page.locator(".plots").nth(1).locator(".average").count() == 0, "another set has a slider of its own"
    values, smoothed = (np.exp(-heights(path) / efold) for path in (before, average.get_attribute("d")))
    weights = 0.6 ** np.arange(len(values))
    expected = [np.average(values[: n + 1][::-1], weights=weights[: n + 1]) for n in range(len(values))]
    np.testing.assert_allclose(smoothed, expected, rtol=1e-6)
    page.locator(".smoothing input").first.fill("0")
    assert page.locator(".average").count() == 0 and measured.evaluate("one => one.style.opacity") == ""
    page.close()


def heights(path: str) -> np.ndarray:
    return np.array([float(y) for _, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)])


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_stands_alone(browser: Browser, report_page: Path, pictures: Path, scheme: str) -> None:  # noqa: F811
    for width in WIDTHS:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            offline=True,  # type: ignore[arg-type]
        )
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []

        def note(request: Request, asked: list[str] = asked) -> None:
            asked.append(request.url)

        page.on("console", lambda message, said=said: said.append(message.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("request", note)
        page.goto(report_page.as_uri())
        screenshot(page, pictures / f"report-{scheme}-{width}.png", full_page=True)
        assert said == []
        assert {url for url in asked if not url.startswith("data:")} == {report_page.as_uri()}
        assert page.locator("figure svg").count() == 16
        assert page.locator("h1").text_content().startswith("accum, train.batch_size=32 ends at a better")
        number, line = (page.locator(where).first.bounding_box() for where in (".number", ".forest .nothing"))
        assert number["y"] + number["height"] < 900 and line["height"] > 10  # the number is on the first screen
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ids = page.locator("[id]").evaluate_all("found => found.map(one => one.id)")
        assert len(ids) == len(set(ids))
        context.close()
