"""Messages for errors of Hydra and OmegaConf: one sentence each with what is wrong, which key, and what to write."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from typing import get_type_hints

from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from msaccel.accel import methods
from msaccel.errors import on_one_line
from msaccel.schema import GROUPS, Config
from msaccel.tracking.credentials import scrubbed

HYDRA_ERRORS = (HydraException, OmegaConfBaseException)

_KINDS = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false", "String": "a text"}


def sentence(error: BaseException) -> str:
    """The sentence for an error that Hydra or OmegaConf raised; the error's first line if its kind is not known."""
    text = _printed(dict.fromkeys([str(error), str(error.__cause__ or "")]))
    if found := re.search(
        r"Could not find '([^']+)'\s+Available options in '([^']+)':\s*(.*?)(\s+Config search path|$)",
        text,
        re.DOTALL,
    ):
        group, option = found[2], found[1].split("/")[-1]
        return f"{group}={option} does not exist; write {group}= with one of {', '.join(found[3].split())}."
    if found := re.search(r"'hydra/launcher/(\w+)': Could not load 'schema/launcher/", text):
        return f"hydra/launcher={found[1]} needs a package that is missing; run pip install -e . -c constraints.txt."
    if text.startswith("In 'hydra/sweeper/optuna': Could not find 'hydra/sweeper/sampler/tpe'"):
        return "hydra/sweeper=optuna needs a package that is missing; run pip install -e '.[tune]' -c constraints.txt."
    if found := re.search(r"Ambiguous value for argument '(.*)'", text):
        return f"{found[1]} names several values; write run.py -m to sweep over them, or quote them as one value."
    if isinstance(error, OverrideParseException):
        typed, equals, value = str(error.override).partition("=")
        override = on_one_line(f"{typed}{equals}{'…' if 'tracking' in typed else _printed([value])}")
        return f"{override} cannot be read; write key=value, with quotes around special characters."
    key = re.search(r"full_key: (\S+)", text) or re.search(r"Could not override '([^']+)'", text)
    name = key[1] if key else ""
    if found := re.search(r"Value '(.*?)'(?: of type '\w+')? (?:could not be converted to|is not a valid) (\w+)", text):
        return f"{name}={found[1]} has the wrong type; write {name}= with {_KINDS.get(found[2], found[2])}."
    if found := re.search(r"Error merging override (\S+?)=(\S*)", text):
        return (
            f"{found[1]}={found[2]} has the wrong type, since {found[1]} holds other keys; write {found[1]}.key=value."
        )
    if name and ("Key '" in text or "No match in the defaults list" in text or "Could not override" in text):
        match = re.search(r"Could not override '([^']+)'", text)
        return unknown_key(match[1] if match else name)
    if isinstance(error, InterpolationResolutionError) or isinstance(error.__cause__, InterpolationResolutionError):
        found_key = re.search(r"full_key: (\S+)", text)
        name = found_key[1] if found_key else "a value"
        return f"{name} refers with ${{...}} to something that does not exist; write the value itself."
    if "Missing mandatory value" in text:
        return f"{name} has no value; write {name}= with one."
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return first.strip().rstrip(".:") + "."


def _printed(lines: Iterable[str]) -> str:
    """Lines about what was typed, without passwords: also those of addresses whose scheme is missing."""
    return re.sub(r"[^\s'\"=/]+:\S+@", "", scrubbed("\n".join(lines)))


def unknown_key(name: str) -> str:
    """The sentence for a key that this job does not have: misspelt, or of an option that was not chosen."""
    owners = known_keys()
    if owner := owners.get(name):
        return f"{name} has no effect here; it belongs to {owner}: choose that, or leave {name} out."
    close = difflib.get_close_matches(name, owners, n=1)
    return f"{name} is not a key; {f'write {close[0]}' if close else 'python run.py --help lists all keys'}."


def known_keys() -> dict[str, str]:
    """Dotted names of all keys, each with the options that have it."""
    keys = {group: "" for group in GROUPS}
    for group, options in GROUPS.items():
        for option, schema in options.items():
            for name in dotted(schema, f"{group}."):
                keys[name] = f"{keys[name]} or {group}={option}" if name in keys else f"{group}={option}"
    keys |= {name: "" for name in dotted(Config, "") if name not in GROUPS}
    for name, method in methods().items():
        keys |= dict.fromkeys(dotted(method.settings, f"accel.{name}."), f"accel={name}")
    return keys


def dotted(schema: type, prefix: str) -> Iterator[str]:
    """Dotted names of a schema's keys, those of nested schemas included."""
    for name, kind in get_type_hints(schema).items():
        if is_dataclass(kind):
            yield from dotted(kind, f"{prefix}{name}.") if name not in GROUPS else ()  # type: ignore[arg-type]
        else:
            yield f"{prefix}{name}"
