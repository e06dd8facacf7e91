"""Loading: limits, splits, digests and batches of one job's data."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from msaccel.data.dataset import DatasetSplits, InMemoryDataset
from msaccel.data.load import load_datasets
from msaccel.data.sets import mnist
from msaccel.data.sets.synthetic import SyntheticSettings
from msaccel.data.transforms import TRANSFORMS
from msaccel.errors import DataError
from msaccel.schema import DataSettings, IdxDataSettings

from .conftest import assert_one_sentence, make_files, source_of, to_idx, write_files

COMMON = {"transform": "mlp28", "limit_train": None, "limit_eval": None, "val_fraction": 0.0}
MNIST = IdxDataSettings(name="mnist", root=None, cache="~/.cache/msaccel", **COMMON)
SYNTHETIC = SyntheticSettings(
    name="synthetic", train_size=60, test_size=20, channels=None, height=None, width=None, classes=10, **COMMON
)


def load(settings: DataSettings, seed: int, shape: tuple[int, ...] = (1, 6, 5)) -> DatasetSplits:
    return load_datasets(settings, seed, shape)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IdxDataSettings:
    """Six training and three test images of 28 x 28 in the user's own folder, in MNIST's place."""
    return own_folder(tmp_path, monkeypatch, make_files())


def own_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> IdxDataSettings:
    monkeypatch.setattr(mnist, "SOURCE", source_of(files))
    return replace(MNIST, root=str(write_files(folder / "own", files)))


def assert_same(split: InMemoryDataset, other: InMemoryDataset) -> None:
    for name in ("images", "labels", "table"):
        np.testing.assert_array_equal(getattr(split, name), getattr(other, name))


def parts(data: DatasetSplits) -> list[InMemoryDataset]:
    return [split for split in (data.train, data.validation, data.test) if split is not None]


@pytest.mark.parametrize(("transform", "side"), [("lenet32", 32), ("mlp28", 28)])
def test_loads_files_in_their_order(tiny: IdxDataSettings, transform: str, side: int) -> None:
    data = load(replace(tiny, transform=transform), seed=0)
    assert (data.name, data.classes, data.validation) == ("mnist", 10, None)
    assert data.train.images.shape == (6, 1, side, side) and data.test.images.shape == (3, 1, side, side)
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4, 5] and data.test.labels.tolist() == [0, 1, 2]
    for split in parts(data):
        assert split.images.dtype == np.uint8 and split.images.flags.c_contiguous
        assert split.labels.dtype == np.int32 and len(split) == len(split.labels)
        np.testing.assert_array_equal(split.table, TRANSFORMS[transform].table)


def test_loads_synthetic_images_in_the_size_asked_for() -> None:
    data = load(replace(SYNTHETIC, classes=4, transform="lenet32"), 0, (3, 6, 5))
    assert data.train.images.shape == (60, 3, 6, 5) and len(data.test) == 20 and data.classes == 4
    np.testing.assert_array_equal(data.train.table, TRANSFORMS["mlp28"].table)


def test_loads_the_real_mnist(real_mnist: Path) -> None:
    data = load(replace(MNIST, transform="lenet32", val_fraction=1 / 12), seed=0)
    assert [len(split) for split in parts(data)] == [55_000, 5_000, 10_000]
    assert data.train.images.shape[1:] == (1, 32, 32)
    assert np.bincount(data.test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.mark.parametrize("count", [1, 32])
def test_a_batch_is_the_table_at_the_images_bytes(count: int) -> None:
    train = load(SYNTHETIC, seed=0).train
    indices = np.random.default_rng(0).permutation(len(train))[:count]
    images, labels = train.batch(indices)
    assert images.dtype == np.float32 and labels.dtype == np.int32 and images.flags.c_contiguous
    np.testing.assert_array_equal(images, train.table[train.images[indices]])
    np.testing.assert_array_equal(labels, train.labels[indices])


def test_a_batch_outside_the_set_is_an_error() -> None:
    with pytest.raises(IndexError):
        load(SYNTHETIC, seed=0).train.batch(np.array([60]))


@pytest.mark.parametrize("name", ["mnist", "synthetic"])
def test_limits_take_the_first_in_file_order(tiny: IdxDataSettings, name: str) -> None:
    settings = tiny if name == "mnist" else SYNTHETIC
    whole, limited = load(settings, 0), load(replace(settings, limit_train=4, limit_eval=2), 0)
    assert_same(limited.train, whole.train.subset(np.arange(4)))
    assert_same(limited.test, whole.test.subset(np.arange(2)))
    assert_same(load(replace(settings, limit_train=len(whole.train)), 0).train, whole.train)


@pytest.mark.parametrize(("key", "size"), [("limit_train", 60), ("limit_eval", 20)])
def test_a_limit_that_does_not_fit_is_refused(key: str, size: int) -> None:
    for limit in (size + 1, 0, -1):
        with pytest.raises(DataError) as error:
            load(replace(SYNTHETIC, **{key: limit}), 0)  # type: ignore[arg-type]
        assert_one_sentence(error, f"data.{key}={limit}", str(size))


@hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(size=st.integers(2, 60), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 2**32 - 1))
def test_validation_is_a_share_of_the_training_set(size: int, fraction: float, seed: int) -> None:
    settings = replace(SYNTHETIC, limit_train=size)
    count = round(size * fraction)
    if not 0 < count < size:
        with pytest.raises(DataError):
            load(replace(settings, val_fraction=fraction), seed)
        return
    whole, data = load(settings, seed), load(replace(settings, val_fraction=fraction), seed)
    assert data.validation is not None and len(data.validation) == count
    assert_same(data.test, whole.test)
    rows = [split.images.reshape(len(split), -1).tolist() for split in (whole.train, *parts(data)[:2])]
    assert sorted(rows[0]) == sorted(rows[1] + rows[2]), "nothing lost, nothing twice"
    for part in rows[1:]:
        places = [rows[0].index(row) for row in part]
        assert places == sorted(places), "both sides keep the file order"


def test_the_validation_split_depends_on_the_seed(tiny: IdxDataSettings) -> None:
    settings = replace(tiny, val_fraction=0.5)
    chosen = {tuple(load(settings, seed).train.labels) for seed in range(10)}
    assert len(chosen) > 1
    assert_same(load(settings, 7).train, load(settings, 7).train)


@pytest.mark.parametrize("fraction", [-0.1, 0.001, 0.999, 1.0, 2.0, float("nan")])
def test_a_split_that_leaves_one_side_empty_is_refused(fraction: float) -> None:
    with pytest.raises(DataError) as error:
        load(replace(SYNTHETIC, val_fraction=fraction), 0)
    assert_one_sentence(error, f"data.val_fraction={fraction}", "60")


def test_the_digest_tells_data_apart(tiny: IdxDataSettings) -> None:
    variants = [
        tiny,
        replace(tiny, transform="lenet32"),
        replace(tiny, limit_train=5),
        replace(tiny, limit_eval=2),
        SYNTHETIC,
    ]
    digests = [load(settings, 0).digest for settings in variants]
    assert digests == [load(settings, 0).digest for settings in variants]
    digests += [load(SYNTHETIC, 1).digest, load(SYNTHETIC, 0, (1, 5, 6)).digest]
    assert len(set(digests)) == len(digests)


def test_the_digest_tells_tables_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    before = load(SYNTHETIC, 0).digest
    transform = TRANSFORMS["mlp28"]
    monkeypatch.setitem(TRANSFORMS, "mlp28", replace(transform, table=transform.table * np.float32(2)))
    assert load(SYNTHETIC, 0).digest != before


def test_the_digest_is_of_the_data_not_of_its_split(tiny: IdxDataSettings) -> None:
    assert load(replace(tiny, val_fraction=0.5), 1).digest == load(tiny, 0).digest


@pytest.mark.parametrize("part", ["train", "t10k"])
def test_labels_out_of_range_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    files = make_files()
    files[f"{part}-labels-idx1-ubyte"] = to_idx(np.array([0, 10, 2, 3, 4, 5][: 6 if part == "train" else 3], np.uint8))
    with pytest.raises(DataError) as error:
        load(own_folder(tmp_path, monkeypatch, files), 0)
    assert_one_sentence(error, str(tmp_path), f"{part} label 10", "9")


def test_images_and_labels_of_different_number_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make_files() | {"train-labels-idx1-ubyte": to_idx(np.zeros(5, np.uint8))}
    with pytest.raises(DataError) as error:
        load(own_folder(tmp_path, monkeypatch, files), 0)
    assert_one_sentence(error, str(tmp_path), "6 train images", "5 labels")


def test_synthetic_pictures_in_colour() -> None:
    data = load(SYNTHETIC, 0, (3, 8, 8))
    assert data.train.batch(np.arange(4))[0].shape == (4, 3, 8, 8)
    assert data.train.images.flags.c_contiguous
