"""How fast photographs become a network's input: images per second of one core, step by step, and of the pipeline.

`python benchmarks/pipeline.py [--rounds N] [--photos FOLDER]` takes the 20 labelled photographs of foolbox 2.4.0, most
of them 512 × 512, which pip downloads where no folder with JPEG files is given. In one process the variants take turns,
so that a machine that drifts slows all of them. Rates of one core are by processor time, which others on the machine
hardly change; those by wall time say what arrives while they share it.
At the end a short job says what share of its training waited for input.

Prints a table and writes it to `benchmarks/pipeline.md`.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from measure import spread

HERE = Path(__file__).parent
SIZE, BATCH, COPIES = 224, 8, 4
JOB = ["model=resnet50", "model.depth=18", "model.classes=20", "train.batch_size=8", "train.max_updates=8"]


def photos(folder: Path) -> list[bytes]:
    """The 20 photographs of foolbox 2.4.0 (MIT)."""
    wanted = ["foolbox==2.4.0", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", *wanted, "-d", folder], check=True, timeout=300)
    with tarfile.open(next(folder.glob("foolbox-*.tar.gz"))) as archive:
        members = sorted((m for m in archive if re.search(r"/imagenet_\d+_\d+\.jpg$", m.name)), key=lambda m: m.name)
        return [archive.extractfile(member).read() for member in members]  # type: ignore[union-attr]


def make_tree(root: Path, files: list[bytes]) -> Path:
    for split, copies in (("train", COPIES), ("val", 1)):
        for number, content in enumerate(files):
            (root / split / f"{number:02}").mkdir(parents=True)
            for copy in range(copies):
                (root / split / f"{number:02}" / f"{copy}.jpg").write_bytes(content)
    return root


def steps(files: list[bytes]) -> dict[str, Callable[[], object]]:
    """What one core does, each with all files."""
    from mindspore.dataset import vision
    from PIL import Image

    from msaccel.data.augment import RANDOM_NUMBERS
    from msaccel.data.image_folder import decode

    random_numbers = np.random.default_rng(0).random((len(files), RANDOM_NUMBERS)).tolist()
    theirs, theirs_cropped = vision.Decode(), vision.RandomCropDecodeResize(SIZE, (0.08, 1.0), (3 / 4, 4 / 3))

    def pillow_decode() -> None:
        for content in files:
            with Image.open(io.BytesIO(content)) as picture:
                picture.load()

    def cropped() -> None:
        for content, numbers in zip(files, random_numbers, strict=True):
            decode.training_view(decode.decode(content), SIZE, numbers)

    def whole() -> None:
        for content, numbers in zip(files, random_numbers, strict=True):
            decode.normalise(decode.training_view(decode.decode(content), SIZE, numbers))

    def evaluation() -> None:
        for content in files:
            decode.normalise(decode.evaluation_view(decode.decode(content), SIZE))

    return {
        "decoder alone (Pillow, libjpeg-turbo)": pillow_decode,
        "decoder alone (MindSpore's `vision.Decode`)": lambda: [theirs(np.frombuffer(c, np.uint8)) for c in files],
        "MindSpore's `RandomCropDecodeResize`": lambda: [theirs_cropped(np.frombuffer(c, np.uint8)) for c in files],
        "Pillow: decode, random crop, resize": cropped,
        "msaccel: the same, flip, normalise": whole,
        "msaccel: evaluation": evaluation,
    }


def rates(files: list[bytes], root: Path, rounds: int) -> dict[str, list[float]]:
    """Images per second of each variant, round after round."""
    from msaccel.data.load import load_datasets
    from msaccel.data.sets.imagenet import ImageFolderSettings

    settings = ImageFolderSettings(
        "imagenet", "imagenet", None, None, 0.0, str(root), "folder", str(root), True, 2, "stop"
    )
    pipelines = {
        workers: load_datasets(replace(settings, workers=workers), 0, (3, SIZE, SIZE)).train for workers in (1, 2)
    }
    count = len(pipelines[1])
    found: dict[str, list[float]] = {}
    for round_ in range(rounds + 1):  # the first one warms up
        for name, work in steps(files).items():
            begun = time.process_time()
            work()
            found.setdefault(name, []).append(len(files) / (time.process_time() - begun))
        for workers, samples in pipelines.items():
            order = np.random.default_rng(round_).permutation(count)
            begun, busy = time.perf_counter(), time.process_time()
            for _ in samples.batches((order[first : first + BATCH] for first in range(0, count, BATCH)), round_):
                pass
            name = f"msaccel's pipeline, {workers} worker{'s' if workers > 1 else ''}"
            found.setdefault(name, []).append(count / (time.process_time() - busy))
            found.setdefault(f"{name} (wall time)", []).append(count / (time.perf_counter() - begun))
    return {name: values[1:] for name, values in found.items()}


def job(root: Path, folder: Path) -> dict[str, float]:
    """A short job's metrics."""
    from msaccel.tracking.store import open_store

    uri = f"sqlite:///{folder}/mlflow.db"
    where = [f"tracking.uri={uri}", f"tracking.artifacts={folder}/artifacts", f"hydra.run.dir={folder}/job"]
    command = [sys.executable, str(HERE.parent / "run.py"), "data=imagenet", f"data.root={root}", *JOB, *where]
    subprocess.run(command, check=True, timeout=900)
    client = open_store(uri)
    (run,) = client.search_runs([found.experiment_id for found in client.search_experiments()])
    return dict(run.data.metrics)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--photos", type=Path, help="a folder with JPEG files to take instead")
    given = parser.parse_args()
    os.environ.setdefault("GLOG_v", "3")
    from bench import machine

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = [f.read_bytes() for f in sorted(given.photos.glob("*.jpg"))] if given.photos else photos(folder)
        root = make_tree(folder / "tree", files)
        measured = rates(files, root, given.rounds)
        metrics = job(root, folder)
    lines = ["| what | images/s, median (min to max) |", "|---|---|"]
    for name, values in measured.items():
        lines.append(f"| {name} | {spread(values, ',.0f')} |")
    what = (
        f"{len(files)} JPEG files of `{given.photos}`"
        if given.photos
        else "the 20 ImageNet photographs of foolbox 2.4.0"
    )
    waited, seconds = metrics["time/input_s"], metrics["time/train_s"]
    text = (
        f"`python benchmarks/pipeline.py`, {given.rounds} rounds in turn, {what} to {SIZE} × {SIZE}, on {machine()}.\n"
        "Rows without (wall time) count processor time, so they are of one core; "
        f"load average meanwhile {os.getloadavg()[1]:.1f}:\n\n"
        + "\n".join(lines)
        + f"\n\nOf a job's training (`{' '.join(JOB)}`, 2 workers) {waited / seconds:.1%} waited for input: "
        f"{waited:.2f} of {seconds:.1f} s, at {metrics['throughput/samples_per_sec']:.1f} samples/s.\n"
    )
    print(text)
    (HERE / "pipeline.md").write_text(text)


if __name__ == "__main__":
    main()
