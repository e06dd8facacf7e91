"""Snapshots of the weights during stage 1: writing them, one file each, and reading them in blocks of columns.

A file holds the parameters under their names, in their order, so its data begin with the flat vector of M numbers, and
any reader of safetensors finds the parameters in it. Behind them are the running statistics of batch norm, if any.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from msaccel.accel.dimreduce import tensor_files
from msaccel.accel.dimreduce.layout import Layout, spans
from msaccel.errors import CheckpointError, CombinationError

KIND = tensor_files.Kind("msaccel-snapshot-1", "snapshots", "accel.dimreduce.snapshots (or from_run)")


@dataclass(frozen=True)
class Snapshot:
    """A snapshot's file.

    Attributes:
        path: of the file.
        update: after how many updates it was taken.
        layout: of its data.
        digest: SHA-256 of its data, in hexadecimal.
        start: where its data begin, in bytes.
    """

    path: Path
    update: int
    layout: Layout
    digest: str
    start: int


def due(updates: int, count: int) -> list[int]:
    """After which updates of stage 1 a snapshot is taken: spread evenly over its second half, the last at its end.

    Two neighbours are the same number of updates apart, give or take one.

    Raises:
        CombinationError: the second half has fewer updates than snapshots are wanted.
    """
    half = updates - updates // 2
    if half < count:
        raise CombinationError(
            f"accel.dimreduce.snapshot.count={count} needs as many updates in the second half of stage 1, which has "
            f"{half}; lower it or raise train.epochs."
        )
    return [updates // 2 + position * half // count for position in range(1, count + 1)]


def write(
    folder: Path,
    layout: Layout,
    weights: Sequence[NDArray[np.float32]],
    update: int,
    keep: int,
    statistics: Mapping[str, NDArray[np.float32]] = MappingProxyType({}),
) -> Path:
    """Writes the weights after `update` updates atomically, then removes all but the `keep` latest snapshots.

    Args:
        folder: of one job's snapshots; created if missing.
        layout: names and shapes of the weights.
        weights: float32, of the layout's shapes.
        update: how many updates stage 1 has made.
        keep: how many files stay.
        statistics: what the network has beside its weights, by name.
    """
    layout.check(weights)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = dict(zip(layout.names, weights, strict=True)) | dict(statistics)
    digest = hashlib.sha256()
    for array in tensors.values():
        digest.update(np.ascontiguousarray(array).data)
    path = _path(folder, update)
    others = [(name, list(array.shape)) for name, array in statistics.items()]
    facts = {"update": update, "layout": layout.entries(), "statistics": others, "sha256": digest.hexdigest()}
    tensor_files.write(path, tensors, KIND, facts)
    for old in sorted(folder.glob("update-*.safetensors"))[:-keep]:
        old.unlink()
    return path


def must_be_there(folder: Path, updates: Sequence[int]) -> None:
    """Makes sure that no snapshot is lost.

    Raises:
        CheckpointError: the snapshot of one of these updates is missing.
    """
    for update in updates:
        if not _path(folder, update).exists():
            raise CheckpointError(
                f"{_path(folder, update)}, a snapshot of stage 1, is gone; put it back or start a new job."
            )


def _path(folder: Path, update: int) -> Path:
    return folder / f"update-{update:010d}.safetensors"


def find(folder: Path, layout: Layout) -> list[Snapshot]:
    """The snapshots of a folder, in the order of their updates.

    Args:
        folder: all its files that end in .safetensors must be snapshots.
        layout: of the network.

    Raises:
        CheckpointError: there are none, one is damaged or foreign, of another network, or two are of one update.
    """
    found: dict[int, Snapshot] = {}
    for path in sorted(folder.glob("*.safetensors")):
        snapshot = opened(path)
        if difference := layout.difference(snapshot.layout):
            raise KIND.refuse(path, difference)
        if other := found.get(snapshot.update):
            raise KIND.refuse(path, f"it is of update {snapshot.update}, like {other.path.name}")
        found[snapshot.update] = snapshot
    if not found:
        raise CheckpointError(f"{folder} holds no snapshots; give a folder that does with {KIND.key}.")
    return [found[update] for update in sorted(found)]


def opened(path: Path) -> Snapshot:
    """Reads a snapshot's header.

    Raises:
        CheckpointError: the file is missing, damaged or foreign.
    """
    contents = tensor_files.read(path, KIND)
    try:
        update, digest = contents.facts["update"], contents.facts["sha256"]
        layout = Layout.from_entries(contents.facts["layout"])
        # Snapshots of before 2026-11-28 have no statistics.
        all_of = Layout.from_entries([*layout.entries(), *contents.facts.get("statistics", [])])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise KIND.refuse(path, f"its metadata are not understood: {error!r}") from error
    if type(update) is not int or update < 0 or not isinstance(digest, str):
        raise KIND.refuse(path, f"its update is {update!r}")
    if list(contents.shapes.items()) != list(zip(all_of.names, all_of.shapes, strict=True)):
        raise KIND.refuse(path, "its tensors are not those its metadata announce")
    return Snapshot(path, update, layout, digest, contents.start)


def verify(snapshot: Snapshot) -> None:
    """Reads a snapshot's data once.

    Raises:
        CheckpointError: they have changed since they were written, or are not all finite.
    """
    digest, finite = hashlib.sha256(), True
    with snapshot.path.open("rb") as file:
        file.seek(snapshot.start)
        while chunk := file.read(2**20):
            digest.update(chunk)
            finite = finite and bool(np.isfinite(np.frombuffer(chunk, "<f4", len(chunk) // 4)).all())
    if digest.hexdigest() != snapshot.digest:
        raise KIND.refuse(snapshot.path, "its weights are not those it was written with")
    if not finite:
        raise KIND.refuse(snapshot.path, "its weights are not all finite")


def columns(snapshots: Sequence[Snapshot], width: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Streams the N × M matrix whose rows are the snapshots' flat vectors.

    The files are read, not mapped: mapped pages count as memory of the process, all N·M of them.

    Args:
        snapshots: N of them, of one layout.
        width: columns in a block.

    Yields:
        Which columns, and their values (N, at most `width`), which the next block overwrites.
    """
    buffer = np.empty((len(snapshots), width), "<f4")
    with ExitStack() as stack:
        streams = [stack.enter_context(snapshot.path.open("rb")) for snapshot in snapshots]
        for stream, snapshot in zip(streams, snapshots, strict=True):
            stream.seek(snapshot.start)
        for span in spans(snapshots[0].layout.size, width):
            block = buffer[:, : span.stop - span.start]
            for stream, row, snapshot in zip(streams, block, snapshots, strict=True):
                if stream.readinto(row.data) != row.nbytes:
                    raise KIND.refuse(snapshot.path, "it ends early")
            yield span, block
