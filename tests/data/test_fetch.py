"""Locating files: the user's folder, the cache, mirrors, in this order and each digest checked."""

import errno
import gzip
import logging
import multiprocessing
import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from msaccel.data.download import fetch
from msaccel.data.download.fetch import locate
from msaccel.data.download.sources import Source
from msaccel.data.sets import mnist
from msaccel.errors import DataError

from .conftest import Mirror, assert_one_sentence, write_files

Files = dict[str, bytes]
IMAGES = "train-images-idx3-ubyte"
spawn = multiprocessing.get_context("spawn")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def assert_complete(folder: Path, files: Files) -> None:
    """The folder holds the files, whole, and nothing half-written."""
    assert {path.name for path in folder.iterdir()} - {".lock"} == set(files)
    for name, content in files.items():
        assert (folder / name).read_bytes() == content


def unreachable() -> str:
    """A mirror on a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/data/"


def test_fills_the_cache_once(source: Source, mirrors: list[Mirror], files: Files, cache: Path) -> None:
    for _ in range(2):
        folder = locate(source, None, str(cache))
        assert folder == cache / "mnist"
        assert_complete(folder, files)
    assert mirrors[0].requests == dict.fromkeys(files, 1)
    assert not mirrors[1].requests


def test_a_full_disk_is_not_blamed_on_the_mirrors(
    source: Source, mirrors: list[Mirror], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(stream: object, path: Path, md5: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(fetch, "install", install)
    with pytest.raises(DataError, match=r"^data.cache=.* cannot be written \(No space left on device\): give another"):
        locate(source, None, str(cache))
    assert len(mirrors[0].requests) == 1 and not mirrors[1].requests


def test_mirrors_of_files_that_are_not_zipped(source: Source, mirrors: list[Mirror], files: Files, cache: Path) -> None:
    mirrors[0].bodies |= dict.fromkeys(files, b"another file")
    mirrors[1].bodies |= files
    assert_complete(locate(replace(source, zipped=False, package=None), None, str(cache)), files)
    assert mirrors[1].requests == dict.fromkeys(files, 1)


def test_a_data_set_that_no_registry_has(source: Source, cache: Path) -> None:
    with pytest.raises(DataError, match="could not be fetched") as refused:
        locate(replace(source, mirrors=(), package=None), None, str(cache))
    assert_one_sentence(refused, "data.root=FOLDER")


def test_expands_the_home_folder(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert_complete(locate(source, None, "~/somewhere"), files)
    assert (tmp_path / "somewhere" / "mnist").is_dir()


@pytest.mark.parametrize("fault", ["absent", "truncated", "damaged", "no gzip"])
def test_the_second_mirror_gives_what_the_first_cannot(
    source: Source,
    mirrors: list[Mirror],
    files: Files,
    cache: Path,
    fault: str,
) -> None:
    zipped = gzip.compress(files[IMAGES])
    second = list(files)[1]
    bodies = {
        "absent": None,
        "truncated": zipped[: len(zipped) // 2],
        "damaged": gzip.compress(files[IMAGES][:-1] + b"!"),
        "no gzip": files[IMAGES],
    }
    mirrors[0].bodies[second] = bodies[fault]
    assert_complete(locate(source, None, str(cache)), files)
    assert mirrors[0].requests == dict.fromkeys(list(files)[:2], 1), "given up at its first failure"
    assert mirrors[1].requests == dict.fromkeys(list(files)[1:], 1), "asked only for what is missing"


def test_an_unreachable_mirror_is_given_up(source: Source, mirrors: list[Mirror], files: Files, cache: Path) -> None:
    source = replace(source, mirrors=(unreachable(), mirrors[1].url))
    assert_complete(locate(source, None, str(cache)), files)


def test_a_silent_mirror_is_given_up(
    source: Source, mirrors: list[Mirror], files: Files, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msaccel.data.download.fetch._TIMEOUT_S", 2.0)
    mirrors[0].stall_after = 40
    assert_complete(locate(source, None, str(cache)), files)
    assert sum(mirrors[0].requests.values()) == 1


def test_a_damaged_cached_file_is_said_and_fetched_again(
    source: Source, mirrors: list[Mirror], files: Files, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_files(cache / "mnist", files | {IMAGES: files[IMAGES][:-1]})
    with caplog.at_level(logging.WARNING):
        assert_complete(locate(source, None, str(cache)), files)
    (record,) = caplog.records
    assert str(folder / IMAGES) in record.getMessage() and "damaged" in record.getMessage()
    assert mirrors[0].requests == {IMAGES: 1}


def test_a_damaged_cached_file_is_never_used(source: Source, cache: Path, files: Files) -> None:
    source = replace(source, mirrors=())
    write_files(cache / "mnist", files | {IMAGES: b"damaged"})
    with pytest.raises(DataError):
        locate(source, None, str(cache))


def test_a_rest_of_a_killed_download_is_no_file(source: Source, cache: Path, files: Files) -> None:
    write_files(cache / "mnist", {f"{IMAGES}.part": files[IMAGES][:100]})
    assert_complete(locate(source, None, str(cache)), files)


def fetch_in_another_process(source: Source, cache: str) -> None:
    """Runs in a fresh process."""
    locate(source, None, cache)


def test_processes_fetch_together_once(source: Source, mirrors: list[Mirror], files: Files, cache: Path) -> None:
    mirrors[0].delay = 0.4  # longer than the processes' starts lie apart
    processes = [spawn.Process(target=fetch_in_another_process, args=(source, str(cache))) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(20)
        assert process.exitcode == 0
    assert_complete(cache / "mnist", files)
    assert mirrors[0].requests == dict.fromkeys(files, 1)


def test_a_killed_fetch_leaves_nothing_in_the_way(
    source: Source, mirrors: list[Mirror], files: Files, cache: Path
) -> None:
    mirrors[0].stall_after = 2000
    process = spawn.Process(target=fetch_in_another_process, args=(source, str(cache)))
    process.start()
    deadline = time.monotonic() + 20
    while not (cache / "mnist" / f"{IMAGES}.part").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(20)
    assert not (cache / "mnist" / IMAGES).exists()
    mirrors[0].stall_after = None
    assert_complete(locate(source, None, str(cache)), files)


def test_the_users_folder_is_used_and_nothing_is_asked(
    source: Source, mirrors: list[Mirror], files: Files, cache: Path, tmp_path: Path
) -> None:
    own = write_files(tmp_path / "own", files)
    assert locate(source, str(own), str(cache)) == own
    assert not cache.exists() and not mirrors[0].requests
    assert {path.name for path in own.iterdir()} == set(files)


@pytest.mark.parametrize("name", list(mnist.SOURCE.files))
def test_an_incomplete_users_folder_is_refused(
    source: Source, mirrors: list[Mirror], files: Files, cache: Path, tmp_path: Path, name: str
) -> None:
    own = write_files(tmp_path / "own", files)
    (own / name).unlink()
    with pytest.raises(DataError) as error:
        locate(source, str(own), str(cache))
    assert_one_sentence(error, "data.root", str(own), name)
    assert not cache.exists() and not mirrors[0].requests


def test_a_missing_users_folder_is_refused(source: Source, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        locate(source, str(tmp_path / "nowhere"), str(cache))
    assert_one_sentence(error, "data.root", "nowhere")


def test_a_users_damaged_file_is_refused_and_left_alone(
    source: Source, files: Files, cache: Path, tmp_path: Path
) -> None:
    own = write_files(tmp_path / "own", files | {IMAGES: b"damaged"})
    with pytest.raises(DataError) as error:
        locate(source, str(own), str(cache))
    assert_one_sentence(error, "data.root", str(own / IMAGES), "damaged")
    assert (own / IMAGES).read_bytes() == b"damaged"


def test_when_nothing_works_one_sentence_lists_what_was_tried(
    source: Source, mirrors: list[Mirror], files: Files, cache: Path
) -> None:
    dead = unreachable()
    source = replace(source, mirrors=(dead, mirrors[1].url))
    mirrors[1].bodies[IMAGES] = None
    with pytest.raises(DataError) as error:
        locate(source, None, str(cache))
    assert_one_sentence(error, dead, "refused", mirrors[1].url, "Not Found", "npm tiny@1: npm is not installed")
    assert_one_sentence(error, *files, "data.root=FOLDER")


def test_a_cache_that_is_no_folder_is_refused(source: Source, cache: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(DataError) as error:
        locate(source, None, str(cache))
    assert_one_sentence(error, f"data.cache={cache}")


def test_a_folder_in_a_files_place_is_refused(source: Source, cache: Path) -> None:
    (cache / "mnist" / IMAGES).mkdir(parents=True)
    with pytest.raises(DataError) as error:
        locate(source, None, str(cache))
    assert_one_sentence(error, str(cache / "mnist" / IMAGES))
