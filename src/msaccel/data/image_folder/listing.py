"""Lists an image folder: ``<root>/<split>/<class>/<image>``, classes and images sorted by name.

The label of a class is the position of its folder among the sorted folders of ``train``. Names that begin with a dot
are ignored. Everything else that is no image is a problem: other endings, empty files, classes without images, folders
in a class, links that lead out of the root, and anything but regular files (opening a pipe would wait forever).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from msaccel.data.dataset import Labels
from msaccel.data.files import explain_read_errors
from msaccel.data.sampler import Indices
from msaccel.errors import DataError, on_one_line
from msaccel.files import open_regular

TRAIN, EVALUATION = ("train",), ("val", "validation_preprocess")
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp")
MAX_BYTES = 1 << 29  # of an image file: a BMP with the largest number of pixels that is decoded takes 358 MB
NAME_FILE = "DATASET"  # a file in the root whose first line names the data; without it, the settings do


@dataclass(frozen=True)
class FileProblem:
    """One file or folder that cannot be used.

    Attributes:
        name: relative to the root.
        reason: what is wrong, in words that follow the name: ``is empty``.
    """

    name: str
    reason: str

    def __str__(self) -> str:
        # A file's name may hold anything, also line breaks.
        return f"{self.name if self.name.isprintable() else ascii(self.name)} {self.reason}"


@dataclass(frozen=True, eq=False)
class ImageListing:
    """The image files of one split.

    Attributes:
        root: of the whole data set.
        classes: names, in the order of the labels.
        names: of the files, relative to the root.
        sizes: in bytes, and times of the last change in nanoseconds, shape ``(n, 2)``.
        labels: shape ``(n,)``.
        problems: files and folders that cannot be used.
    """

    advice = "replace it, or give data.on_broken=skip to leave such images out"

    root: Path
    classes: tuple[str, ...]
    names: tuple[str, ...]
    sizes: Indices
    labels: Labels
    problems: tuple[FileProblem, ...]

    def __len__(self) -> int:
        return len(self.names)

    def name(self, number: int) -> str:
        return str(self.root / self.names[number])

    def read(self, number: int) -> bytes:
        """The bytes of a file."""
        with open_regular(self.root / self.names[number]) as file:
            return file.read(min(os.fstat(file.fileno()).st_size, MAX_BYTES))  # `read` allocates this much

    def take(self, indices: Indices) -> ImageListing:
        """The files at ``indices``, without the problems."""
        names = tuple(self.names[index] for index in indices)
        return replace(self, names=names, sizes=self.sizes[indices], labels=self.labels[indices], problems=())

    def digest(self) -> str:
        """sha256 of names, sizes in bytes and labels: equal on all machines that hold the same files."""
        sha = hashlib.sha256("\0".join((*self.classes, "", *self.names)).encode(errors="surrogateescape"))
        sha.update(np.ascontiguousarray(self.sizes[:, 0]).data)
        sha.update(self.labels.data)
        return sha.hexdigest()


def list_splits(root: Path) -> tuple[ImageListing, ImageListing]:
    """The training and the evaluation split of an image folder.

    Raises:
        DataError: a split is missing or has no image, a folder cannot be read, or a class of evaluation is unknown.
    """
    train = _list(root, _split(root, TRAIN), None)
    evaluation = _list(root, _split(root, EVALUATION), train.classes)
    return train, evaluation


def read_data_name(root: Path, default: str) -> str:
    """The name that the file `DATASET` in the root gives the data."""
    try:
        with open_regular(root / NAME_FILE) as file:
            lines = file.read(1000).decode(errors="replace").splitlines()
    except OSError:
        return default
    first = next((line.strip() for line in lines if line.strip()), "")
    return first if first and first.isprintable() and len(first) <= 60 else default


def _split(root: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        if os.path.isdir(root / name):
            return root / name
    raise DataError(
        f"data.root={root} has no folder {' or '.join(names)}: give a folder that holds train and val, "
        "with a folder for each class in them"
    )


def _list(root: Path, split: Path, known: tuple[str, ...] | None) -> ImageListing:
    problems: list[FileProblem] = []
    inside = os.path.realpath(root) + os.sep
    entries = {entry.name: entry for entry in _entries(split) if _is_class(entry, inside, root, problems)}
    classes = tuple(entries) if known is None else known
    if strange := [name for name in entries if name not in classes]:
        name = on_one_line(str(split / strange[0]), 500)
        raise DataError(f"{name} is a class that {root}/train does not have: give both the same classes")
    names: list[str] = []
    sizes: list[tuple[int, int]] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        before = len(names)
        for entry in _entries(Path(entries[name].path)) if name in entries else ():
            found = _status(entry, inside)
            if isinstance(found, str):
                problems.append(FileProblem(os.path.relpath(entry.path, root), found))
                continue
            names.append(os.path.relpath(entry.path, root))
            sizes.append((found.st_size, found.st_mtime_ns))
            labels.append(label)
        if len(names) == before:
            problems.append(FileProblem(os.path.relpath(split / name, root), "is a class without images"))
    if not names:
        first = f" ({problems[0]})" if problems else ""
        raise DataError(f"{split} has no image that can be used{first}: put some into a folder for each class")
    numbers = np.array(sizes, np.int64)
    return ImageListing(root, classes, tuple(names), numbers, np.array(labels, np.int32), tuple(problems))


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with explain_read_errors(folder, "folder"), os.scandir(folder) as found:
        yield from sorted((e for e in found if not e.name.startswith(".")), key=lambda entry: entry.name)


def _is_class(entry: os.DirEntry[str], inside: str, root: Path, problems: list[FileProblem]) -> bool:
    try:
        if entry.is_symlink() and not _within(entry, inside):
            reason = "is a link that leads out of the folder"
        else:
            reason = "" if entry.is_dir() else "is no folder of a class"
    except OSError as error:  # a link to itself
        reason = f"cannot be read ({error.strerror})"
    if reason:
        problems.append(FileProblem(os.path.relpath(entry.path, root), reason))
    return not reason


def _status(entry: os.DirEntry[str], inside: str) -> os.stat_result | str:
    """What the file system says about an image file, or why it cannot be used."""
    try:
        if entry.is_symlink() and not _within(entry, inside):
            return "is a link that leads out of the folder"
        if entry.is_dir():
            return "is a folder inside a class"
        if not entry.is_file():
            return "is no regular file"
        if not entry.name.lower().endswith(ENDINGS):
            return f"is no image ({', '.join(ENDINGS)})"
        status = entry.stat()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if status.st_size > MAX_BYTES:
        return f"has {status.st_size} bytes, more than {MAX_BYTES}"
    return status if status.st_size else "is empty"


def _within(entry: os.DirEntry[str], inside: str) -> bool:
    return os.path.realpath(entry.path).startswith(inside)
