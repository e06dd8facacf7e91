"""The initialiser that `model.init` names."""

from __future__ import annotations

import re

from mindspore.common.initializer import Initializer, Normal


def initialiser(init: str) -> Initializer | None:
    """For `normal(σ)` a normal distribution with mean 0 and standard deviation σ; None for `default`.

    With None each network takes its own default, which its class describes.
    """
    found = re.fullmatch(r"normal\((.*)\)", init)
    return Normal(float(found[1])) if found else None
