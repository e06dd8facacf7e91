"""Lists an image folder: ``<root>/<split>/<class>/<picture>``, classes and pictures sorted by name.

The label of a class is its place among the sorted folders of ``train``. Names that begin with a dot are passed over.
All else that is no picture is a fault: other endings, empty files, classes without pictures, folders in a class, links
that lead out of the root, and what is no regular file (opening a pipe would wait for ever).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from msaccel.data.image_folder.faults import Fault
from msaccel.data.sampler import Indices
from msaccel.data.samples import Labels
from msaccel.errors import DataError, on_one_line
from msaccel.files import open_regular

TRAIN, EVALUATION = ("train",), ("val", "validation_preprocess")
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp")
MOST_BYTES = 1 << 29  # of a picture's file: a BMP of as many pixels as are decoded takes 358 MB
ABOUT = "DATASET"  # a file in the root whose line names the data set; without it, it is the settings' name


@dataclass(frozen=True, eq=False)
class Listing:
    """The pictures of one split.

    Attributes:
        root: of the whole data set.
        classes: names, in the order of the labels.
        names: of the pictures, relative to the root.
        sizes: in bytes, and when they were last changed in nanoseconds, shape ``(n, 2)``.
        labels: shape ``(n,)``.
        faults: what was found beside them.
    """

    root: Path
    classes: tuple[str, ...]
    names: tuple[str, ...]
    sizes: Indices
    labels: Labels
    faults: tuple[Fault, ...]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def mend(self) -> str:
        return "replace it, or give data.on_broken=skip to leave such pictures out"

    def name(self, number: int) -> str:
        return str(self.root / self.names[number])

    def read(self, number: int) -> bytes:
        """The picture's file."""
        with open_regular(self.root / self.names[number]) as file:
            return file.read(min(os.fstat(file.fileno()).st_size, MOST_BYTES))  # a buffer is made of as many bytes

    def take(self, indices: Indices) -> Listing:
        """The pictures at ``indices``, without the faults."""
        names = tuple(self.names[index] for index in indices)
        return replace(self, names=names, sizes=self.sizes[indices], labels=self.labels[indices], faults=())

    def digest(self) -> str:
        """sha256 of names, sizes in bytes and labels: equal on all servers that hold the same files."""
        sha = hashlib.sha256("\0".join((*self.classes, "", *self.names)).encode(errors="surrogateescape"))
        sha.update(np.ascontiguousarray(self.sizes[:, 0]).data)
        sha.update(self.labels.data)
        return sha.hexdigest()


def list_splits(root: Path) -> tuple[Listing, Listing]:
    """The training and the evaluation split of an image folder.

    Raises:
        DataError: a split is missing or has no picture, a folder cannot be read, or a class of evaluation is unknown.
    """
    train = _list(root, _split(root, TRAIN), None)
    evaluation = _list(root, _split(root, EVALUATION), train.classes)
    return train, evaluation


def data_name(root: Path, default: str) -> str:
    """What the file `DATASET` in the root calls the data set."""
    try:
        with open_regular(root / ABOUT) as file:
            lines = file.read(1000).decode(errors="replace").splitlines()
    except OSError:
        return default
    return lines[0] if lines and lines[0].isprintable() and len(lines[0]) <= 60 else default


def _split(root: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        if os.path.isdir(root / name):
            return root / name
    raise DataError(
        f"data.root={root} has no folder {' or '.join(names)}: give a folder that holds train and val, "
        "with a folder for each class in them"
    )


def _list(root: Path, split: Path, known: tuple[str, ...] | None) -> Listing:
    faults: list[Fault] = []
    inside = os.path.realpath(root) + os.sep
    entries = {entry.name: entry for entry in _entries(split) if _is_class(entry, inside, root, faults)}
    classes = tuple(entries) if known is None else known
    if strange := [name for name in entries if name not in classes]:
        name = on_one_line(str(split / strange[0]), 500)
        raise DataError(f"{name} is a class that {root}/train has not: give both the same classes")
    names: list[str] = []
    sizes: list[tuple[int, int]] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        before = len(names)
        for entry in _entries(Path(entries[name].path)) if name in entries else ():
            found = _status(entry, inside)
            if isinstance(found, str):
                faults.append(Fault(os.path.relpath(entry.path, root), found))
                continue
            names.append(os.path.relpath(entry.path, root))
            sizes.append((found.st_size, found.st_mtime_ns))
            labels.append(label)
        if len(names) == before:
            faults.append(Fault(os.path.relpath(split / name, root), "is a class without pictures"))
    if not names:
        first = f" ({faults[0]})" if faults else ""
        raise DataError(f"{split} has no picture that can be used{first}: put some into a folder for each class")
    numbers = np.array(sizes, np.int64)
    return Listing(root, classes, tuple(names), numbers, np.array(labels, np.int32), tuple(faults))


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from sorted((e for e in found if not e.name.startswith(".")), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{folder} cannot be read ({error.strerror}): check the folder and its rights") from error


def _is_class(entry: os.DirEntry[str], inside: str, root: Path, faults: list[Fault]) -> bool:
    reason = ""
    if entry.is_symlink() and not _within(entry, inside):
        reason = "is a link that leads out of the folder"
    elif not entry.is_dir():
        reason = "is no folder of a class"
    if reason:
        faults.append(Fault(os.path.relpath(entry.path, root), reason))
    return not reason


def _status(entry: os.DirEntry[str], inside: str) -> os.stat_result | str:
    """What the file system says about a picture, or why it cannot be used."""
    try:
        if entry.is_symlink() and not _within(entry, inside):
            return "is a link that leads out of the folder"
        if entry.is_dir():
            return "is a folder inside of a class"
        if not entry.is_file():
            return "is no regular file"
        if not entry.name.lower().endswith(ENDINGS):
            return f"is no picture ({', '.join(ENDINGS)})"
        status = entry.stat()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if status.st_size > MOST_BYTES:
        return f"has {status.st_size} bytes, more than {MOST_BYTES}"
    return status if status.st_size else "is empty"


def _within(entry: os.DirEntry[str], inside: str) -> bool:
    return os.path.realpath(entry.path).startswith(inside)
