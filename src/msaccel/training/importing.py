"""Imports in a process of its own, without the search for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """For imports, which make no garbage: looking for it takes 0.9 s of their 4.5 s.

    What was imported never becomes garbage either, so it is left out when MindSpore looks, before every compilation.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.enable()
