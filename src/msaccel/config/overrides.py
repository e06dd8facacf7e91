"""The keys that the overrides of a command line set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException


def keys_set_by(overrides: Iterable[str]) -> Iterator[str]:
    """Dotted keys, down to single values: `optimizer={lr: 0.1}` sets `optimizer.lr`, and `optimizer=adam` the group."""
    parser = OverridesParser.create()
    for override in overrides:
        try:
            parsed = parser.parse_override(override)
        except HydraException:  # a change recorded by `resume=`, whose value is written without quotes
            yield override.partition("=")[0].lstrip("+~")
        else:
            yield from (key for key, _ in leaves(parsed.key_or_group, parsed.value()))


def leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of what an override sets, which may be a dictionary."""
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from leaves(f"{key}.{name}", part)
    else:
        yield key, value
