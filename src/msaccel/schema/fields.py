"""Fields of the settings: a key's range beside its type, and a walk over all keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any

REQUIRED = "???"  # OmegaConf's mark of a value that YAML must give


@dataclass(frozen=True)
class Range:
    """The values a key may have; a bound of None means no bound."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    number: bool = False  # of a field of type Any: whole or not
    choices: tuple[Any, ...] | None = None
    pattern: str | None = None
    prose: bool = False  # text of any length, in no file's name
    example: str = ""


def setting(*, example: str = "", default: Any = MISSING, **bounds: Any) -> Any:
    """A dataclass field with a range. Its value comes from YAML unless `default` is given."""
    metadata = {"range": Range(example=example, **bounds)}
    return field(default=REQUIRED if default is MISSING else default, metadata=metadata)


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any, Range | None]]:
    """Every key with its dotted name, value and range, in the order of definition."""
    if is_dataclass(node) and not isinstance(node, type):
        for item in fields(node):
            value, name = getattr(node, item.name), f"{prefix}{item.name}"
            if is_dataclass(value) or (isinstance(value, dict) and "range" not in item.metadata):
                yield from leaves(value, f"{name}.")
            else:
                yield name, value, item.metadata.get("range")
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from leaves(value, f"{prefix}{name}.")


def of_other_forms(group: str, form: str, keys: dict[str, str]) -> dict[str, str]:
    """The keys of a group that its `form` never reads, each with the setting that makes it useless.

    Args:
        keys: for each key that only one form reads, that form.
    """
    return {f"{group}.{key}": f"{group}.form={form}" for key, reader in keys.items() if reader != form}
