"""Opening a safetensors file that anybody may have written.

The library executes nothing, and checks that names, types, shapes and offsets agree with the size of the file. It reads
headers of up to 100 MB, though, of which millions of empty tensors take a gigabyte, and it opens pipes and devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from msaccel.errors import on_one_line
from msaccel.files import open_regular

LARGEST_HEADER = 2**25  # bytes; that of a ResNet-101 with its optimizer has 2^17, and metrics may wait in it


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
