"""The methods: one package each, found here by name.

One update has five slots in a fixed order: accumulate, reduce, guard, clip, apply. A method's package holds

* `SLOT`, the slot it fills; two methods in one slot exclude each other,
* `Settings`, a dataclass of `msaccel.schema.setting` fields, filled from `conf/accel/<method>.yaml` under the
  method's own name,
* `refusals(settings, config)`, one sentence for each combination with other settings that cannot be right,

and imports nothing heavy, since the launching process reads it; what runs in the graph is in its modules. A method in
the slot `clip` has a module `cell` with `build(settings, weights)`, which is all that a job needs to know of it;
`docs/adding-a-method.md` adds one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType

SLOTS = ("accumulate", "reduce", "guard", "clip", "apply")


def methods() -> dict[str, ModuleType]:
    """All methods by name, in the order of their slots, which is also the order of a label."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return dict(sorted(found.items(), key=lambda item: SLOTS.index(item[1].SLOT)))


def filling(slot: str, names: Iterable[str]) -> str | None:
    """The one of these methods that fills a slot."""
    slots = {name: method.SLOT for name, method in methods().items()}
    return next((name for name in names if slots[name] == slot), None)


def label(names: Iterable[str]) -> str:
    """`accum+clip`: the methods in slot order, or `none`."""
    chosen = set(names)
    return "+".join(name for name in methods() if name in chosen) or "none"
