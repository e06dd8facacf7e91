"""What cannot be used in an image folder: named, counted, and an error or left out, as configured."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msaccel.errors import DataError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fault:
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


def settle(root: Path, faults: Sequence[Fault], on_broken: str) -> None:
    """Raises for faults, or says that they are left out.

    Args:
        on_broken: ``stop`` or ``skip``.

    Raises:
        DataError: there are faults, and ``stop``.
    """
    if not faults:
        return
    more = f", and {len(faults) - 1} more of this kind or another" if len(faults) > 1 else ""
    found = f"{len(faults)} in {root} cannot be used ({faults[0]}{more})"
    if on_broken == "stop":
        raise DataError(
            f"{found}: see all with python -m msaccel data check --root {root}, mend them, or leave them out with "
            "data.on_broken=skip (--on-broken skip where they are converted)"
        )
    _log.warning("%s and left out", found)
