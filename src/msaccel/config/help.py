"""`python run.py --help`: what `conf/` says about groups, options and keys, with the ranges of their schemas.

A key's description is the comment beside it in `conf/`, so each fact is written once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from msaccel.accel import SLOTS, methods
from msaccel.config import compose
from msaccel.config.bounds import limits
from msaccel.config.overrides import leaves as dotted
from msaccel.config.run_name import default_options
from msaccel.files import CONF
from msaccel.schema import Range, leaves
from msaccel.tracking.credentials import without_password

WIDTH = 80  # columns of the page
_INTRODUCTION = """\
msaccel: does this method make training better or faster?

  python run.py [group=option] [key=value]        one job
  python run.py -m [group=option,option] [...]    a sweep: every combination
"""
_EXAMPLES = """\
Examples
  python run.py model=mlp accel=accum accel.accum.steps=8 train.epochs=5
  python run.py -m accel=none,accum seed=0,1,2
  python run.py experiment=grad_accum_lenet
  python run.py --help accel=clip         the keys of an option
  python run.py --cfg job accel=clip      composes a job and starts nothing
  python run.py --hydra-help              Hydra's own flags
Where results are, and how to compare them: README.md"""
_Values = dict[str, tuple[Any, "Range | None"]]  # each key's value, as it stands in `conf/` or was typed, and its range


def page(overrides: Iterable[str]) -> str:
    """All that can be chosen; or, if the overrides choose options, a description of these and their keys.

    Raises:
        ConfigError: the overrides cannot be composed.
    """
    composed = compose.composed(overrides)
    ranges = {key: bounds for key, _, bounds in leaves(compose.typed(composed.copy()))}
    written: Any = OmegaConf.to_container(composed)
    values = {key: (value, ranges[key]) for key, value in _leaves(written) if key in ranges}
    options = {group: [written[group]["name"]] for group in default_options() if group not in ("accel", "experiment")}
    options["accel"] = list(written["accel"])
    if chosen := dict(_chosen(overrides)):
        options["experiment"] = [chosen["experiment"]] if chosen.get("experiment") else []
        shown = [_section(group, option, values) for group in chosen for option in options[group]]
        return "\n".join([*chain.from_iterable(shown), "All groups, options and keys: python run.py --help"])
    groups = chain.from_iterable(_group(group, default) for group, default in default_options().items())
    sections = [_section(group, option, values) for group, names in options.items() for option in names]
    return "\n".join(
        [
            _INTRODUCTION,
            "Groups (group=option; * is the default)",
            *groups,
            "",
            "Keys (key=value), with their defaults",
            *_keys(CONF / "config.yaml", "", values),
            "",
            *chain.from_iterable(sections),
            _EXAMPLES,
        ]
    )


def comments(path: Path) -> tuple[list[str], dict[str, str]]:
    """The comments in a file of `conf/`: the lines at its head, and the comment beside each key, by dotted name."""
    text = path.read_text()
    head = re.match(r"(#.*\n)*", text)
    lines = [line[2:] for line in head[0].splitlines() if "@package" not in line] if head else []
    return lines, dict(_beside(yaml.compose(text), "", text.splitlines()))


def _beside(node: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    for key, value in node.value:
        nested = isinstance(value, yaml.MappingNode)
        end = (key if nested else value).end_mark
        yield f"{prefix}{key.value}", lines[end.line][end.column :].partition("# ")[2].strip()
        if nested:
            yield from _beside(value, f"{prefix}{key.value}.", lines)


def _chosen(overrides: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """The groups in which the overrides choose an option, with the options."""
    for override in map(OverridesParser.create().parse_override, overrides):
        if override.key_or_group in default_options():
            yield override.key_or_group, override.value()


def _leaves(content: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return chain.from_iterable(dotted(key, value) for key, value in content.items())


def _group(group: str, default: Any) -> Iterator[str]:
    yield f"  {group}"
    for path in sorted((CONF / group).glob("*.yaml")):
        mark = "*" if default in (path.stem, [path.stem]) else ""
        said = " ".join(comments(path)[0])
        yield from _entry(f"  {path.stem}{mark}", re.split(r"[.:]( |$)", said, maxsplit=1)[0], 24)


def _section(group: str, option: str, values: _Values) -> Iterator[str]:
    """An option: what it is, and its keys."""
    path = CONF / group / f"{option}.yaml"
    said, _ = comments(path)
    for is_command, part in groupby([f"{group}={option}: {said[0]}", *said[1:]], lambda line: line.startswith("  ")):
        lines = list(part)
        yield from lines if is_command else wrap(" ".join(lines), WIDTH, subsequent_indent="  ")
    if group == "accel" and option in methods():
        method = methods()[option]
        baseline = "same micro-batch, and same global batch" if method.steps_key else method.baseline
        slots = " → ".join(SLOTS).replace(method.slot, f"[{method.slot}]")
        yield from wrap(f"  slot: {slots}", WIDTH, subsequent_indent="    ")
        yield f"  baseline: accel=none ({baseline or 'without the method'})"
    if group == "experiment":
        content = yaml.safe_load(path.read_text())
        for entry in content.pop("defaults"):
            yield from (f"  {name.removeprefix('override /')}={_typed(value)}" for name, value in entry.items())
        yield from (f"  {key}={_typed(value)}" for key, value in _leaves(content))
    else:
        yield from _keys(path, f"{group}.", values)
    yield ""


def _keys(path: Path, prefix: str, values: _Values) -> Iterator[str]:
    """The keys of a file, except those that hold other keys and `name`, which the choice of the option sets."""
    for name, comment in comments(path)[1].items():
        if name != "name" and f"{prefix}{name}" in values:
            value, bounds = values[f"{prefix}{name}"]
            yield from _entry(f"{prefix}{name}={_typed(value)}", _described(comment, bounds), 30)


def _described(comment: str, bounds: Range | None) -> str:
    """A comment, with the values that are allowed: a range, and choices unless the comment names some."""
    choices = [str(choice) for choice in bounds.choices or ()] if bounds else []
    unnamed = "" if set(choices) & set(re.split(r"[\s,:;()]+", comment)) else " | ".join(choices)
    allowed = "; ".join(filter(None, [unnamed, limits(bounds) if bounds else ""]))
    return f"{comment} ({allowed})" if allowed else comment


def _typed(value: Any) -> str:
    """A value as one types it, without a password."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_typed, value))}]"
    return without_password(str(value))


def _entry(label: str, text: str, indent: int) -> Iterator[str]:
    """A label and a description beside it, or below where the label is long."""
    lines = wrap(text, WIDTH - indent) or [""]
    first = lines.pop(0) if len(label) < indent - 3 else ""
    yield f"  {label:<{indent - 2}}{first}".rstrip()
    yield from (f"{'':{indent}}{line}" for line in lines)
