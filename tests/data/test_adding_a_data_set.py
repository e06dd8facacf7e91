"""The page on adding a data set, followed to the letter in a copy of the repository."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from msaccel.data.synthetic_images import generate
from msaccel.files import ROOT
from tests import pages

PAGE = ROOT / "docs" / "adding-a-data-set.md"
# Long enough to be interrupted: 660 updates, a checkpoint after every 20, one evaluation.
LONG = (
    "data=npz",
    "data.root=digits.npz",
    "model=mlp",
    "train.epochs=60",
    "train.eval_every=60",
    "checkpoint.every_updates=20",
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert len(pages.files(PAGE.read_text())) == 4
    root = pages.copy_with(PAGE, tmp_path_factory.mktemp("copy"))
    (x_train, y_train), (x_test, y_test) = generate((340, 70), (1, 28, 28), classes=7, seed=0)
    np.savez(root / "digits.npz", x_train=x_train[:, 0], y_train=y_train, x_test=x_test[:, 0], y_test=y_test)
    return root


@pytest.mark.slow
def test_help_shows_it(copy: Path) -> None:
    ended = pages.run(copy, "run.py", "--help", "data=npz")
    assert ended.returncode == 0, ended.stderr
    assert "data.root=null              your .npz file, with x_train" in ended.stdout


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ((), "data=npz is not downloaded; write data.root=FILE"),
        (("data.rot=digits.npz",), "data.rot is not a key; write data.root=digits.npz."),
        (("model=resnet50", "model.image_size=64", "data.root=digits.npz"), "write model.image_size=32 or leave it"),
        (("data.transform=imagenet", "data.root=digits.npz"), "write data.transform=lenet32 or data.transform=auto."),
    ],
)
def test_what_cannot_be_right_is_refused(copy: Path, overrides: tuple[str, ...], sentence: str) -> None:
    ended = pages.run(copy, "run.py", "data=npz", *overrides)
    assert ended.returncode == 2 and sentence in ended.stderr


@pytest.mark.slow
def test_it_trains_resumes_is_evaluated_and_compared(copy: Path) -> None:
    ended = pages.run(copy, "run.py", *LONG)
    assert ended.returncode == 0, ended.stderr
    assert "input 1 × 28 × 28, 7 classes" in ended.stdout
    run_id = pages.kill_and_resume(copy, "mlp-npz", *LONG, "accel=clip")
    scored = pages.run(copy, "-m", "msaccel", "eval", run_id)
    assert scored.returncode == 0 and "accuracy" in scored.stdout, scored.stderr
    report = pages.run(copy, "-m", "msaccel", "compare", "--experiment", "mlp-npz")
    assert report.returncode == 0 and "without clipping" in report.stdout, report.stderr


@pytest.mark.slow
def test_more_classes_than_the_network_has_are_refused_when_it_is_read(copy: Path) -> None:
    ended = pages.run(copy, "run.py", *LONG, "model.classes=6")
    assert ended.returncode == 1 and "model.classes=6 is fewer than the 7 classes of data=npz" in ended.stderr


@pytest.mark.slow
def test_the_test_of_the_page_passes(copy: Path) -> None:
    ended = pages.run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_npz.py")
    assert ended.returncode == 0 and "4 passed" in ended.stdout, ended.stdout
