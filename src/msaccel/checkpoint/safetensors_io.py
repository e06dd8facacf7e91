"""Safetensors files: the bytes of one, in the given order of its arrays, and opening one that anybody may have written.

The library executes nothing, and checks that names, types, shapes and offsets agree with the size of the file. But it
reads headers of up to 100 MB, whose millions of empty tensors take a gigabyte, and it opens pipes and devices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from msaccel.errors import on_one_line
from msaccel.files import open_regular

LARGEST_HEADER = 2**25  # bytes; that of a ResNet-101 with its optimizer has 2^17, and metrics may wait in it


# The format's names of NumPy's types.
DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def pieces(arrays: Mapping[str, NDArray[Any]], mark: str, facts: dict[str, Any]) -> Iterator[Any]:
    """The bytes of a file: length of the header and header, then the data of each array, not copied.

    Args:
        mark: name of the one metadata entry, which holds the facts as JSON.
    """
    entries: dict[str, Any] = {"__metadata__": {mark: json.dumps(facts)}}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        entries[name] = {"dtype": DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": (begin, end)}
    encoded = json.dumps(entries, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)  # the data begin at a multiple of 8, as the format asks
    yield len(encoded).to_bytes(8, "little") + encoded
    for array in arrays.values():
        yield np.asarray(array, order="C").reshape(-1).view(np.uint8).data


class Unreadable(Exception):
    """The file cannot be read; the message is the reason, in a few words."""


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The library's view of a file whose header has been checked; nothing of its data is read yet.

    Raises:
        Unreadable: it is missing or no safetensors file, also where that shows only as it is read.
    """
    try:
        with open_regular(path) as file:
            length = int.from_bytes(file.read(8), "little")
        if length > LARGEST_HEADER:
            raise Unreadable(f"its header would have {length} bytes, more than {LARGEST_HEADER}")
        with safe_open(path, framework="np") as view:
            yield view
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    # TypeError and AttributeError: a type of numbers that NumPy has not.
    except (SafetensorError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(on_one_line(str(error), 120)) from error


def start(path: Path) -> int:
    """Where the data begin, in bytes."""
    with open_regular(path) as file:
        return 8 + int.from_bytes(file.read(8), "little")
