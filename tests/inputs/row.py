"""A row of the table in docs/bad-inputs.md, and what makes its sentence the same on every machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One bad input.

    Attributes:
        name: of the input, as the table has it.
        where: the command or key that it reaches.
        act: makes the input in an empty folder and gives it to the code: what is said is raised as a `UserError`, or
            returned where it is a documented skip.
        phrase: that must be in the sentence.
        skipped: whether the job goes on without the input.
    """

    name: str
    where: str
    act: Callable[[Path], str | None]
    phrase: str
    skipped: bool = False


def plain(text: str, folder: Path) -> str:
    """A sentence without the folder of this test and other things that differ from machine to machine."""
    for path in (str(folder.resolve()), str(folder)):
        text = text.replace(path, "FOLDER")
    text = re.sub(r"object at 0x[0-9a-f]+", "object", text)
    text = re.sub(r"[0-9a-f]{64}", "DIGEST", text)
    text = re.sub(r"expected [0-9a-f]{12}", "expected another one", text)  # that of this version of MLflow
    text = re.sub(r"(cannot be decoded) \([^)]*\)", r"\1 (…)", text)  # in the words of this version of Pillow
    return re.sub(r"\b[0-9a-f]{32}\b", "ID", text)
