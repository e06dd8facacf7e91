"""Bad files of state: checkpoints, PCA matrices, snapshots, resume checkpoints, saved configurations."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor
from safetensors.numpy import save

from msaccel import schema
from msaccel.accel.dimreduce import basis, snapshots
from msaccel.accel.dimreduce.layout import Layout
from msaccel.checkpoint import resume_file
from msaccel.checkpoint import weights as checkpoint
from msaccel.config import compose
from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.launch.job_folder import JobFolder
from msaccel.tracking import saved_run
from msaccel.training.resume_checkpoints import ResumeCheckpoints

from .row import Row
from .settings_rows import store_in

LAYOUT = Layout(("weight", "bias"), ((2, 4), (3,)))
FACTS = {"variance": [0.3, 0.1], "total_variance": 0.75, "rank": 5, "layout": LAYOUT.entries(), "snapshots": ["aa"]}
MATRIX = np.eye(2, 11, dtype=np.float32)
WEIGHTS = {"weight": np.ones((2, 4), np.float32), "bias": np.zeros(3, np.float32)}
COUNTERS = {checkpoint.FORMAT: '{"update": 7}'}


class Harm:
    """What a pickle may hold: it makes a file when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch harm",)


PICKLE = pickle.dumps(Harm())


def header(entries: dict[str, Any], data: bytes = bytes(64), length: int | None = None) -> bytes:
    """A file in safetensors' format that may announce anything."""
    encoded = json.dumps(entries).encode()
    return (len(encoded) if length is None else length).to_bytes(8, "little") + encoded + data


def tensor(shape: list[int], begin: int = 0, end: int = 64, kind: str = "F32") -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def weights(content: bytes | None):
    """accel.dimreduce.weights names a file of this content; None: it is a pipe."""

    def read(tmp: Path) -> None:
        path = tmp / "last.safetensors"
        path.write_bytes(content) if content is not None else os.mkfifo(path)
        into = [Parameter(Tensor(np.full(w.shape, 9, np.float32)), name=name) for name, w in WEIGHTS.items()]
        try:
            checkpoint.read(path, into)
        finally:
            assert all((parameter.asnumpy() == 9).all() for parameter in into), "nothing is loaded"

    return read


def matrix(content: bytes):
    """accel.dimreduce.pca.path names a file of this content."""

    def read(tmp: Path) -> None:
        (tmp / "pca.safetensors").write_bytes(content)
        basis.load(tmp / "pca.safetensors", LAYOUT, 2)

    return read


def pca(changed: dict[str, Any] | None = None, values: np.ndarray = MATRIX) -> bytes:
    return save({basis.TENSOR: values}, {basis.KIND.mark: json.dumps({**FACTS, **(changed or {})})})


def snapshot(tmp: Path) -> None:
    path = snapshots.write(tmp, LAYOUT, list(WEIGHTS.values()), 7, keep=2)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    snapshots.verify(snapshots.find(tmp, LAYOUT)[0])


def lost_snapshots(tmp: Path) -> None:
    snapshots.find(tmp, LAYOUT)


def resumed(content: bytes, digest: str = ""):
    """The newest resume checkpoint has this content; the one before it is whole."""

    def read(tmp: Path) -> str:
        kept = ResumeCheckpoints(schema.CheckpointSettings(), tmp, SINGLE_PROCESS, {})
        resume_file.write(kept.files, 10, {"a": np.zeros(2)}, {}, keep=2)
        name = f"update-0000000020.{digest or hashlib.sha256(content).hexdigest()}.safetensors"
        (kept.files / name).write_bytes(content)
        with redirect_stderr(io.StringIO()) as said:
            found = kept.read()
        assert found is not None and found.update == 10
        return said.getvalue().strip()

    return read


def other_data(tmp: Path) -> None:
    ResumeCheckpoints(schema.CheckpointSettings(), tmp, SINGLE_PROCESS, {"data": "abc"}).write(
        5, {"a": np.zeros(2)}, {}
    )
    ResumeCheckpoints(schema.CheckpointSettings(), tmp, SINGLE_PROCESS, {"data": "abd"}).read()


def configuration(text: str):
    """A run's config.yaml, as `eval` fetches it or `resume=` finds it, holds this."""

    def read(tmp: Path) -> None:
        (tmp / "config.yaml").write_text(text)
        compose.load(tmp / "config.yaml")

    return read


def altered(old: str, new: str):
    """The configuration of a real job, with a line changed."""

    def read(tmp: Path) -> None:
        from hydra import compose as hydra_compose
        from hydra import initialize_config_dir

        from msaccel.files import CONF

        compose.register()
        with initialize_config_dir(str(CONF), version_base="1.3"):
            compose.save(compose.typed(hydra_compose("config")), tmp / "config.yaml")
        text = (tmp / "config.yaml").read_text()
        assert old in text
        configuration(text.replace(old, new))(tmp)

    return read


def no_such_run(tmp: Path) -> None:
    saved_run.fetch(store_in(tmp), "../../etc/passwd\n", "last", tmp)


def broken_task(tmp: Path) -> None:
    (tmp / "job.json").write_text('{"name": "a", "evil": 1}')
    JobFolder(tmp).task()


def bomb() -> str:
    """Ten levels of nine references each: 3.5 billion texts."""
    lines = ["a0: &a0 [x]"]
    return "\n".join(lines + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 11)])


FROM, PATH = "`accel.dimreduce.weights=`", "`accel.dimreduce.pca.path=`"
SNAPSHOTS, RESUME, EVAL = "`accel.dimreduce.snapshots=`", "`resume=`", "`python -m msaccel eval`"
OVERLAP = {"__metadata__": COUNTERS, "weight": tensor([8], 0, 32), "bias": tensor([8], 16, 48)}
WHOLE = save(WEIGHTS, COUNTERS)
ROWS = [
    Row("checkpoint cut off", FROM, weights(WHOLE[:-9]), "cannot be read as a checkpoint"),
    Row("checkpoint of another network", FROM, weights(save({"conv": MATRIX}, COUNTERS)), "is of another network"),
    Row("checkpoint of another shape", FROM, weights(save({**WEIGHTS, "bias": MATRIX}, COUNTERS)), "should have the"),
    Row("checkpoint of whole numbers", FROM, weights(save({**WEIGHTS, "bias": np.zeros(3, int)}, COUNTERS)), "of I64"),
    Row("checkpoint without msaccel's mark", FROM, weights(save(WEIGHTS)), "is no checkpoint of msaccel"),
    Row(
        "checkpoint whose counters are a list", FROM, weights(save(WEIGHTS, {checkpoint.FORMAT: "[1]"})), "is no check"
    ),
    Row("header of 2⁶⁰ bytes", FROM, weights(header({}, length=2**60)), "its header would have"),
    Row("header of 64 MB of spaces", FROM, weights((2**26).to_bytes(8, "little") + b" " * 2**26), "its header would"),
    Row("tensors that overlap", FROM, weights(header(OVERLAP)), "cannot be read as a checkpoint"),
    Row("tensor beyond the file's end", FROM, weights(header({"weight": tensor([2**40], 0, 2**42)})), "cannot be read"),
    Row("shape whose size overflows", FROM, weights(header({"weight": tensor([2**33, 2**33])})), "cannot be read"),
    Row("pickle named .safetensors", FROM, weights(PICKLE), "cannot be read as a checkpoint"),
    Row("a pipe in place of a checkpoint", FROM, weights(None), "no regular file"),
    Row(".npy file of Python objects", PATH, matrix(npy(np.array([Harm()], object))), "cannot be used as the PCA"),
    Row(".npy file that claims 2⁶⁰ numbers", PATH, matrix(npy(MATRIX).replace(b"(2, 11)", b"(2**60)")), "cannot be"),
    Row("PCA matrix cut off", PATH, matrix(pca()[:-4]), "cannot be used as the PCA matrix"),
    Row("PCA matrix of another network", PATH, matrix(pca({"layout": [["conv", [11]]]})), "conv stands where weight"),
    Row("PCA matrix of other shape", PATH, matrix(pca(values=MATRIX[:, :9].copy())), "components=2 needs (2, 11)"),
    Row("PCA matrix with NaN", PATH, matrix(pca(values=MATRIX * np.float32("nan"))), "are not all finite"),
    Row("PCA matrix of endless rank", PATH, matrix(pca({"rank": float("inf")})), "metadata are not understood"),
    Row("PCA matrix of no variance", PATH, matrix(pca({"total_variance": 0})), "metadata are not understood"),
    Row("PCA matrix with a line break in a name", PATH, matrix(pca({"layout": [["a\nb", [11]]]})), r"a\nb stands"),
    Row("PCA matrix nested 100,000 deep", PATH, matrix(save({"a": MATRIX}, {basis.KIND.mark: "[" * 10**5})), "lacks"),
    Row("snapshot with a bit flipped", SNAPSHOTS, snapshot, "are not those it was written with"),
    Row("folder without snapshots", SNAPSHOTS, lost_snapshots, "holds no snapshots"),
    Row("resume checkpoint cut off", RESUME, resumed(b"", "0" * 64), "is damaged", skipped=True),
    Row("pickle as a resume checkpoint", RESUME, resumed(PICKLE), "The one before it is used", skipped=True),
    Row("resume checkpoint without mark", RESUME, resumed(save({"a": MATRIX})), "lacks the mark", skipped=True),
    Row("resume checkpoint of other data", RESUME, other_data, "had data abc and would have abd here"),
    Row("job.json of something else", RESUME, broken_task, "is not the folder of a job"),
    Row("saved configuration of a million million texts", EVAL, configuration(bomb()), "it has aliases"),
    Row("saved configuration that reads a secret", EVAL, altered("seed: 0", "seed: ${oc.env:HOME}"), "${...}"),
    Row(
        "saved configuration with a Python object",
        EVAL,
        configuration("a: !!python/object/apply:os.system [x]"),
        "YAML",
    ),
    Row("saved configuration nested 100,000 deep", EVAL, configuration("[" * 10**5), "not the configuration"),
    Row("saved configuration of another program", EVAL, configuration("a: 1\n"), "is not the configuration of a job"),
    Row("saved configuration that is a number", EVAL, configuration("  0"), "it is no YAML of settings"),
    Row("saved configuration with seed −1", EVAL, altered("seed: 0", "seed: -1"), "seed=-1 is out of range"),
    Row("saved configuration with a rate of 400 digits", EVAL, altered("lr: 0.01", f"lr: 1{'0' * 400}"), "too large"),
    Row(
        "saved configuration with a seed of 4,000 hexadecimal digits",
        EVAL,
        altered("seed: 0", f"seed: 0x{'f' * 4000}"),
        "seed=(a number of more than 64 bits) is out of range",
    ),
    Row(
        "saved configuration with such a number in a list",
        EVAL,
        altered("eval_every: 1", f"eval_every: [0x{'f' * 4000}]"),
        "is not the configuration of a job",
    ),
    Row("run id `../../etc/passwd`", EVAL, no_such_run, "has no saved last checkpoint"),
]
