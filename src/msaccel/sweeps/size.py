"""How many jobs a sweep asks for, counted without making a list of them: seed=range(0,1e12) is thirteen characters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice

from hydra.core.override_parser.types import Override, ValueType

MOST_JOBS = 10_000


def refusals(overrides: Iterable[Override]) -> list[str]:
    """A sentence if a sweep over these values is one that nobody means.

    Raises:
        OmegaConfBaseException, HydraException: the values cannot be enumerated.
    """
    sizes = {
        override.key_or_group: sum(1 for _ in islice(override.sweep_iterator(), MOST_JOBS + 1))
        for override in overrides
        if override.is_sweep_override() and override.value_type != ValueType.GLOB_CHOICE_SWEEP
    }
    if math.prod(sizes.values()) <= MOST_JOBS:
        return []
    named = " × ".join(f"{key} ({size if size <= MOST_JOBS else 'more'})" for key, size in sizes.items())
    return [f"the sweep has more than {MOST_JOBS} jobs, {named}; write fewer values, or several sweeps."]
