"""The page on adding a network, followed to the letter in a copy of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from msaccel.files import ROOT
from tests import pages

PAGE = ROOT / "docs" / "adding-a-network.md"
# Long enough to be interrupted: 660 updates, a checkpoint after every 20.
SMALL = ("model=allconv", "model.width=4", "data=synthetic", "data.train_size=340", "data.test_size=70")
LONG = (*SMALL, "train.epochs=60", "checkpoint.every_updates=20")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert len(pages.files(PAGE.read_text())) == 4
    return pages.copy_with(PAGE, tmp_path_factory.mktemp("copy"))


@pytest.mark.slow
def test_help_shows_it(copy: Path) -> None:
    ended = pages.run(copy, "run.py", "--help", "model=allconv")
    assert ended.returncode == 0, ended.stderr
    assert "model.width=16              channels of the first convolution" in ended.stdout


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("model.width=0",), "model.width=0 is out of range (at least 1 and at most 1024)"),
        (("model.widht=8",), "model.widht is not a key; write model.width or model.widths."),
        (("data=cifar10",), "write data= with one of fashion_mnist, mnist, synthetic."),
    ],
)
def test_what_cannot_be_right_is_refused(copy: Path, overrides: tuple[str, ...], sentence: str) -> None:
    ended = pages.run(copy, "run.py", "model=allconv", *overrides)
    assert ended.returncode == 2 and sentence in ended.stderr


@pytest.mark.slow
def test_it_trains_resumes_and_is_compared(copy: Path) -> None:
    ended = pages.run(copy, "run.py", *LONG)
    assert ended.returncode == 0, ended.stderr
    assert "allconv with 1,030 parameters in 11 tensors, input 1 × 28 × 28, 10 classes" in ended.stdout
    pages.kill_and_resume(copy, "allconv-synthetic", *LONG, "accel=clip")
    report = pages.run(copy, "-m", "msaccel", "compare", "--experiment", "allconv-synthetic")
    assert report.returncode == 0 and "without clipping" in report.stdout, report.stderr


@pytest.mark.slow
def test_the_test_of_the_page_passes(copy: Path) -> None:
    ended = pages.run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_allconv.py")
    assert ended.returncode == 0 and "2 passed" in ended.stdout, ended.stdout
