"""The data sets: one module or package each, found here by name.

The module of a data set, `data/sets/<name>.py`, holds `SETTINGS`, the dataclass of its keys, filled from
`conf/data/<name>.yaml`; `load`, which reads it; `SOURCE` if its files can be downloaded; and `TITLE` if a sentence
names it otherwise. What reads files or makes arrays is in other modules, which `load` imports: the process that
launches jobs reads this and loads neither NumPy nor MindSpore. `docs/adding-a-data-set.md` adds one.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache
from types import ModuleType


@lru_cache
def data_sets() -> dict[str, ModuleType]:
    """All data sets by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def title(name: str) -> str:
    """How a sentence names a data set: `Fashion-MNIST`."""
    return str(getattr(data_sets()[name], "TITLE", name))
