"""Cards and the README, written between their markers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msaccel.compare.render.card import write_into
from msaccel.study import answer, picture
from msaccel.study.driver import Driver

OVERVIEW = Path("docs/pictures/studies.png")


def write(driver: Driver) -> None:
    """The card of a study and its picture; what overrides made another study is only printed."""
    text = answer.text(driver)
    if driver.more:
        print(text)
        return
    picture.save(picture.rates(driver), driver.study.picture)
    write_into(driver.study.card, text)
    print(f"{driver.study.name}: {driver.study.card}")


def write_overview(drivers: Sequence[Driver], path: Path) -> None:
    """The table over studies into a file of the repository's root, and its picture where the file looks for it."""
    pairs = answer.answered(drivers)
    blocks = [answer.overview(pairs)]
    if figure := picture.differences(pairs):
        picture.save(figure, path.parent / OVERVIEW)
        blocks.append(f"![Differences to the baselines]({OVERVIEW})")
    write_into(path, "\n\n".join(blocks))
