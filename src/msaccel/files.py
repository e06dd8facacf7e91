"""Files that are whole, or not there: what is cut off while it is written never has the file's name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from msaccel.errors import naming


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """Opens another file beside it, which gets this name once it is on the disk.

    Raises:
        OSError: it could not be written; what was there stays.
    """
    temporary = path.with_name(f"{path.name}.part")
    try:
        with naming(path), temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
