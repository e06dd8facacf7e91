"""The readers that are fuzzed: any bytes must give data, or one of the errors that say what is wrong with them.

Whatever else a target raises is a bug. `SEEDS` are right inputs from which mutations start.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
from PIL import Image
from safetensors.numpy import save

from msaccel.accel.dimreduce import basis
from msaccel.accel.dimreduce.layout import Layout
from msaccel.checkpoint import resume_file as resume_files
from msaccel.config import compose
from msaccel.data.download import archives
from msaccel.data.download.install import DownloadError
from msaccel.data.idx import read_idx
from msaccel.data.image_folder import decode, mindrecord
from msaccel.data.image_folder.listing import list_splits
from msaccel.errors import UserError
from msaccel.files import CONF

_FOLDER = tempfile.TemporaryDirectory(prefix="msaccel-fuzz-")
PLACE = Path(_FOLDER.name)
LAYOUT = Layout(("weight", "bias"), ((2, 4), (3,)))
WEIGHTS = {"weight": np.ones((2, 4), np.float32), "bias": np.zeros(3, np.float32)}
MATRIX = np.eye(2, 11, dtype=np.float32)
FACTS = {"variance": [0.3, 0.1], "total_variance": 0.75, "rank": 5, "layout": LAYOUT.entries(), "snapshots": ["aa"]}


def _file(content: bytes, name: str) -> Path:
    (PLACE / name).write_bytes(content)
    return PLACE / name


def idx(content: bytes) -> None:
    """A file of images and, in the first bytes' other meaning, of labels."""
    for shape in ((2, 3), ()):
        with suppress(UserError):
            found = read_idx(_file(content, "images"), shape)
            assert found.shape[1:] == shape and found.nbytes <= len(content)


def image_folder(content: bytes) -> None:
    """A folder with one picture of these bytes, listed and decoded, as training and evaluation see it."""
    root = PLACE / "tree"
    for split in ("train", "val"):
        (root / split / "a").mkdir(parents=True, exist_ok=True)
        (root / split / "a" / "b.jpg").write_bytes(content)
    with suppress(UserError, decode.DecodeError):
        listing, _ = list_splits(root)
        if len(listing):
            decode.check(listing.read(0))
            picture = decode.decode(listing.read(0))
            shown = decode.training_view(picture, 8, [0.5] * 41), decode.evaluation_view(picture, 8)
            assert all(decode.normalise(view).shape == (3, 8, 8) for view in shown)


@cache
def _parameters():
    from mindspore import Parameter, Tensor

    return [Parameter(Tensor(value), name=name) for name, value in WEIGHTS.items()]


def checkpoint(content: bytes) -> None:
    """A checkpoint of two parameters; it needs MindSpore."""
    from msaccel.checkpoint import weights

    with suppress(UserError):
        counters = weights.read(_file(content, "last.safetensors"), _parameters())
        assert all(isinstance(value, int) for value in counters.values())


def resume(content: bytes) -> None:
    """A resume checkpoint whose name agrees with its bytes."""
    path = _file(content, f"update-0000000007.{hashlib.sha256(content).hexdigest()}.safetensors")
    try:
        with suppress(UserError):
            saved = resume_files.read(path)
            assert sum(array.nbytes for array in saved.arrays.values()) <= len(content)
    finally:
        path.unlink()


def pca(content: bytes) -> None:
    with suppress(UserError):
        found = basis.load(_file(content, "pca.safetensors"), LAYOUT, 2)
        assert found.matrix.shape == (2, 11) and np.isfinite(found.explained)


def archive(content: bytes) -> None:
    """A zipped package, as a mirror and as a registry's client would hand it over."""
    with suppress(DownloadError), archives.explain_damage("damaged"), archives.open_file(io.BytesIO(content)) as opened:
        archives.member(opened, "package/a").read(1 << 20)
    with (
        suppress(DownloadError),
        archives.explain_damage("damaged"),
        archives.open_stream(io.BytesIO(content)) as opened,
    ):
        for info in archives.members(opened):
            assert info.size >= 0


def configuration(content: bytes) -> None:
    with suppress(UserError):
        compose.load(_file(content, "config.yaml"))


def records(content: bytes) -> None:
    """A MindRecord file beside a right index."""
    path = _file(content, "train.mindrecord")
    if not (PLACE / "train.mindrecord.db").exists():
        (PLACE / "train.mindrecord.db").write_bytes(_mindrecord()[1])
    with suppress(UserError):
        found = mindrecord.read(path)
        try:
            for number in range(len(found.labels)):
                found.read(number)
        finally:
            found.file.close()


def _picture(kind: str) -> bytes:
    stream = io.BytesIO()
    coarse = np.random.default_rng(0).integers(256, size=(6, 8, 3), dtype=np.uint8)
    Image.fromarray(coarse).save(stream, kind)
    return stream.getvalue()


def _tar() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as packed:
        for name in ("package/" + "long" * 40, "package/a"):
            info = tarfile.TarInfo(name)
            info.size = 5
            packed.addfile(info, io.BytesIO(b"12345"))
    return stream.getvalue()


@cache
def _mindrecord() -> tuple[bytes, bytes]:
    """A file of two pictures in the form of MindRecord, and its index, made without MindSpore."""
    about = json.dumps({"name": "tiny", "classes": ["a", "b"]})
    head = {"version": "3.0", "compression_size": 0, "header_size": 512, "page_size": 1024, "schema": [{"desc": about}]}
    encoded = json.dumps(head).encode()
    content = (len(encoded).to_bytes(8, "little") + encoded).ljust(512, b"\0") + bytes(200)
    path = PLACE / "made.db"
    with closing(sqlite3.connect(path)) as index:
        names = "PAGE_ID_BLOB, PAGE_OFFSET_BLOB, PAGE_OFFSET_BLOB_END, label_0, number_0"
        index.execute(f"CREATE TABLE INDEXES ({names})")
        index.executemany("INSERT INTO INDEXES VALUES (?, ?, ?, ?, ?)", [(0, 0, 50, 0, 0), (0, 50, 100, 1, 1)])
        index.commit()
    return content, path.read_bytes()


@cache
def _configuration() -> bytes:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    compose.register()
    with (
        mock.patch.dict("os.environ", {"MLFLOW_TRACKING_URI": ""}),
        initialize_config_dir(str(CONF), version_base="1.3"),
    ):
        compose.save(compose.typed(hydra_compose("config")), PLACE / "seed.yaml")
    return (PLACE / "seed.yaml").read_bytes()


IMAGES = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (2, 2, 3)) + bytes(range(12))
TARGETS: dict[str, tuple[Callable[[bytes], None], Callable[[], list[bytes]]]] = {
    "idx": (idx, lambda: [IMAGES, b"\0\0\x08\x01\0\0\0\x02\x01\x02", gzip.compress(IMAGES)]),
    "image_folder": (image_folder, lambda: [_picture(kind) for kind in ("JPEG", "PNG", "BMP")]),
    "checkpoint": (checkpoint, lambda: [save(WEIGHTS, {"msaccel-1": '{"update": 7}'})]),
    "resume": (resume, lambda: [save({"a": MATRIX, "b": np.zeros(2, bool)}, {resume_files.MARK: '{"a": [1]}'})]),
    "pca": (pca, lambda: [save({basis.TENSOR: MATRIX}, {basis.KIND.mark: json.dumps(FACTS)})]),
    "archive": (archive, lambda: [_tar()]),
    "configuration": (configuration, lambda: [_configuration()]),
    "records": (records, lambda: [_mindrecord()[0]]),
}
