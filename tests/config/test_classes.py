"""A network has as many classes as its data, unless `model.classes` gives more."""

from pathlib import Path

import pytest

from msaccel.config.checks import refusals
from msaccel.config.compose import from_overrides
from msaccel.errors import DataError
from tests.data.test_image_folder import make_tree


@pytest.mark.parametrize(
    ("overrides", "classes"),
    [
        ((), 10),
        (("model=resnet50", "data=cifar10"), 10),
        (("data=synthetic", "data.classes=7"), 7),
        (("data=synthetic", "data.classes=7", "model.classes=9"), 9),
        (("model=resnet50", "data=imagenet", "data.root=FOLDER"), None),
    ],
)
def test_the_data_gives_them(overrides: tuple[str, ...], classes: int | None) -> None:
    config = from_overrides(overrides)
    assert config.model.classes == classes and not refusals(config)


def test_fewer_are_refused() -> None:
    (said,) = refusals(from_overrides(["data=synthetic", "data.classes=7", "model.classes=6"]))
    assert said == "model.classes=6 is fewer than the 7 classes of data=synthetic; write model.classes=7."


def test_an_image_folder_gives_them_when_it_is_read(tmp_path: Path) -> None:
    from msaccel.training.job import load_data

    own = f"data.root={make_tree(tmp_path / 'tree')}", f"data.cache={tmp_path}"
    overrides = ["model=resnet50", "model.image_size=32", "data=imagenet", "train.batch_size=2", *own]
    config = from_overrides(overrides)
    assert config.model.classes is None
    assert load_data(config).classes == config.model.classes == 3
    with pytest.raises(DataError, match=r"model\.classes=2 is fewer than the 3 classes"):
        load_data(from_overrides([*overrides, "model.classes=2"]))
