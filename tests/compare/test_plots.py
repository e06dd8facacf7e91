"""The plots of a report: every method is in them and told from the others, and ticks state what they stand for."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.ticker import MaxNLocator

from msaccel.compare.render import curves, write
from msaccel.compare.render.figures import PERCENT, Style
from msaccel.tracking.ui_view import COLOURS

from .conftest import Planted

METHODS = 14


@pytest.fixture
def page(planted: Planted, tmp_path: Path) -> str:
    for place in range(METHODS):
        times = {"metric_throughput__samples_per_sec": 2.5 + place / 10, "metric_time__train_s": 30.0 + place}
        method = {} if place == 0 else {"accel": "clip", "accel__clip__max_norm": f"{place}.0"}
        planted.runs([0.9412 + place / 2000, 0.9421 + place / 2000], curve=True, **times, **method)
    return write.write(planted.client, planted.report(), tmp_path / "report").read_text()


def test_every_method_is_in_every_plot(page: str) -> None:
    figures = dict(re.findall(r"<figure><figcaption>([^<]*)</figcaption>(.*?)</figure>", page, re.S))
    assert len(figures) == 9
    styled = rf'style="[^"]*(?:fill|stroke): (?:{"|".join(COLOURS)})[^"]*"'
    for title, svg in figures.items():
        lines = [path for path in re.findall(r"<path[^>]*>", svg) if re.search(styled, path)]
        if " over " in title:
            drawn = [line for line in lines if "fill: none" in line and " L " in line.replace("\n", " L ", 1)]
            assert len(drawn) >= 2 * METHODS, title
        else:
            assert len(lines) >= METHODS, title
    for title in ("Final accuracy of each seed", "Throughput, mean ± standard deviation"):
        labels = re.findall(r"<text[^>]*>([^<]*)</text>", figures[title])
        assert {str(place + 1) for place in range(METHODS)} <= set(labels), title
    legend = page.split('<div class="legend">')[1].split("</div>")[0]
    assert legend.count("<svg") == METHODS and "clip, accel.clip.max_norm=13.0" in legend


def test_no_two_methods_look_alike() -> None:
    looks = [(style.colour, style.dashes, style.marker) for style in map(Style, range(168))]
    assert len(set(looks)) == len(looks)
    assert len({look[:2] for look in looks[:24]}) == 24


@pytest.mark.parametrize("reach", [1e-5, 0.0007, 0.004, 0.013, 0.03, 0.06, 0.2, 1.0])
def test_a_tick_states_what_it_stands_for(reach: float) -> None:
    for low in np.linspace(0, 1 - reach, 7):
        for tick in MaxNLocator(6).tick_values(low, low + reach):
            assert float(PERCENT(tick, None).rstrip("%")) == pytest.approx(100 * tick, abs=1e-8)


def test_the_page_says_how_many_seeds_have_curves(
    planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [curves.seeds_drawn(methods) for methods in (1, 6, 200, 201, 600, 601)] == [3, 3, 3, 2, 1, 0]
    planted.runs([0.9, 0.91], curve=True)
    for most, said in ((12, "first 3 seeds of each"), (4, "first seed of each"), (3, "There are no curves, since")):
        monkeypatch.setattr(curves, "MAX_CALLS", most)
        text = write.write(planted.client, planted.report(), tmp_path / "report").read_text()
        assert said in text and ("Training loss" in text) is (most > 3)
