"""MindRecord: all images of a split in one file, with an index; written by MindSpore, read in any order here.

MindSpore's readers go through a file in order. Its index is an SQLite table with the place of every row, so reading
image n is one `pread`: page p of the images begins at ``header_size + p * page_size``, and 8 bytes before each image
give its size. (Format 3.0, as `mindspore.mindrecord` 2.10 writes it; another version is refused.)

A row has the unchanged image file (`image`), its `label`, its `name` and its `number` in file order. The name of the
data and its classes are in the schema's description.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from msaccel.data.dataset import Labels
from msaccel.data.files import explain_read_errors
from msaccel.data.image_folder.listing import ImageListing
from msaccel.errors import DataError, on_one_line
from msaccel.files import open_regular

SPLITS = ("train.mindrecord", "val.mindrecord")
_SCHEMA = {
    "number": {"type": "int64"},
    "label": {"type": "int32"},
    "name": {"type": "string"},
    "image": {"type": "bytes"},
}
_ROWS = 64  # that are written together
_MOST_OF_A_HEADER = 1 << 24  # bytes; with ImageNet's thousand classes it has 2^16
_LENGTH = 8  # bytes before an image that give its size
_PAGE = 1 << 25  # bytes of a page, which an image must fit into: MindSpore's default
_PLACES = (
    "SELECT PAGE_ID_BLOB, PAGE_OFFSET_BLOB, PAGE_OFFSET_BLOB_END, label_0, number_0 FROM INDEXES ORDER BY number_0"
)


@dataclass(frozen=True, eq=False)
class MindRecordFile:
    """The images of one split.

    Attributes:
        path: the file.
        data_name: the name of the data.
        classes: names, in the order of the labels.
        labels: shape ``(n,)``.
        places: where each image begins, and its size in bytes, shape ``(n, 2)``.
        file: the open file.
    """

    advice = "convert the images again with python -m msaccel data to-mindrecord"

    path: Path
    data_name: str
    classes: tuple[str, ...]
    labels: Labels
    places: NDArray[np.int64]
    file: BinaryIO

    def name(self, number: int) -> str:
        return f"image {number} in {self.path}"

    def read(self, number: int) -> bytes:
        """The bytes of an image file."""
        first, size = map(int, self.places[number])
        return os.pread(self.file.fileno(), size, first)

    def digest(self) -> str:
        """sha256 of classes, labels and the sizes of the images."""
        sha = hashlib.sha256("\0".join(self.classes).encode(errors="surrogateescape"))
        sha.update(self.labels.data)
        sha.update(np.ascontiguousarray(self.places[:, 1]).data)
        return sha.hexdigest()


def write(splits: tuple[ImageListing, ImageListing], data_name: str, folder: Path) -> None:
    """Writes both splits into a folder.

    Raises:
        DataError: an image cannot be read or is too large, or MindSpore cannot write.
    """
    for listing in splits:
        largest = int(np.argmax(listing.sizes[:, 0]))
        if listing.sizes[largest, 0] + _LENGTH > _PAGE:
            raise DataError(
                f"{listing.name(largest)} has {listing.sizes[largest, 0]:,} bytes, and MindRecord takes at most "
                f"{_PAGE - _LENGTH:,}: make it smaller, or leave the folder as it is (data.format=folder)"
            )
    for listing, name in zip(splits, SPLITS, strict=True):
        try:
            _write(listing, data_name, folder / name)
        except RuntimeError as error:  # MindSpore's, with its C++ stack
            said = on_one_line(" ".join(str(error).split()), 80)
            raise DataError(f"{folder / name} cannot be written ({said}): give another --output") from error


def _write(listing: ImageListing, data_name: str, path: Path) -> None:
    from mindspore.mindrecord import FileWriter

    writer = FileWriter(str(path), 1)
    writer.add_schema(_SCHEMA, json.dumps({"name": data_name, "classes": listing.classes}))
    writer.add_index(["number", "label"])
    for first in range(0, len(listing), _ROWS):
        numbers = range(first, min(first + _ROWS, len(listing)))
        writer.write_raw_data([_row(listing, number) for number in numbers])
    writer.commit()
    mask = os.umask(0)
    os.umask(mask)
    for written in (path, path.with_name(f"{path.name}.db")):
        written.chmod(0o666 & ~mask)  # MindSpore leaves them to their owner alone


def _row(listing: ImageListing, number: int) -> dict[str, Any]:
    label, name = int(listing.labels[number]), listing.names[number]
    with explain_read_errors(listing.root / name):
        content = listing.read(number)
    return {"number": number, "label": label, "name": ascii(name)[1:-1], "image": content}


def read(path: Path) -> MindRecordFile:
    """Opens one split.

    Raises:
        DataError: it is missing, or `write` did not write it.
    """
    try:
        with ExitStack() as on_failure:
            file = on_failure.enter_context(open_regular(path))
            records = _check_header(path, file, _rows(path.with_name(f"{path.name}.db")))
            on_failure.pop_all()
            return records
    except FileNotFoundError as error:
        raise DataError(
            f"data.root has no {path}: write it with python -m msaccel data to-mindrecord, or give data.format=folder"
        ) from error
    except (OSError, sqlite3.Error, ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        words = on_one_line(" ".join(str(error).split()), 80)
        raise DataError(
            f"{path} cannot be read ({words}): write it again with python -m msaccel data to-mindrecord"
        ) from error


def _rows(path: Path) -> NDArray[np.int64]:
    """What the index says about each image, shape ``(n, 5)``.

    Raises:
        OSError, sqlite3.Error, ValueError: it cannot be read, or holds something else.
    """
    with open_regular(path):
        pass  # SQLite would wait for a pipe
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as index:
        # A view could compute rows without end, and a column of any size.
        found = index.execute("SELECT type, rootpage, sql FROM sqlite_master WHERE name = 'INDEXES'").fetchone()
        if found is None or found[0] != "table" or not found[1] or re.search(r"\bAS\b", found[2], re.I):
            raise ValueError("its index has no plain table INDEXES")
        rows = np.array(index.execute(_PLACES).fetchall())
    if rows.dtype != np.int64 or rows.shape[1:] != (5,):
        raise ValueError("a label or a place in its index is no whole number")
    return rows


def _check_header(path: Path, file: BinaryIO, rows: NDArray[np.int64]) -> MindRecordFile:
    """Reads the header of a file and checks it against the index.

    Raises:
        OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError: the header is not understood, or
            does not agree with the index.
    """
    length = int.from_bytes(os.pread(file.fileno(), 8, 0), "little")
    header = json.loads(os.pread(file.fileno(), min(length, _MOST_OF_A_HEADER), 8))
    about = json.loads(header["schema"][0]["desc"])
    if header["version"] != "3.0" or header["compression_size"]:
        raise ValueError(f"version {header['version']}")
    classes = tuple(map(str, about["classes"]))
    end = os.fstat(file.fileno()).st_size
    # Python's integers do not overflow, NumPy's do.
    begin, page = int(header["header_size"]), int(header["page_size"])
    if not 0 <= begin <= end or rows[:, :3].min() < 0 or int(rows[:, 0].max()) * abs(page) > end:
        raise ValueError("it is not whole")
    first, size = begin + rows[:, 0] * page + rows[:, 1] + _LENGTH, rows[:, 2] - rows[:, 1] - _LENGTH
    inside = rows[:, 1:3].max() <= end and size.min() >= 0 and first.min() >= 0 and (first + size).max() <= end
    if not inside or (rows[:, 4] != np.arange(len(rows))).any():
        raise ValueError("it is not whole")
    labels = rows[:, 3]
    if not 0 <= labels.min() <= labels.max() < len(classes):
        raise ValueError(f"a label is outside of 0 to {len(classes) - 1}")
    places = np.stack([first, size], 1)
    return MindRecordFile(path, str(about["name"]), classes, labels.astype(np.int32), places, file)
