"""Operators that MindSpore lacks, or has too slowly, on the device at hand.

`use(choose("auto", on_cpu=True))` before networks are built, then `Conv2d` in the place of `nn.Conv2d`. Importing this
package does not import MindSpore: the process that launches jobs asks it whether oneDNN's operators can be had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msaccel.kernels.choice import Choice, choose, chosen, refusals, use

if TYPE_CHECKING:
    from msaccel.kernels.conv import Conv2d

__all__ = ["Choice", "Conv2d", "choose", "chosen", "refusals", "use"]


def __getattr__(name: str) -> Any:
    if name == "Conv2d":
        from msaccel.kernels.conv import Conv2d

        return Conv2d
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
