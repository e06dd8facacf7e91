"""Overrides as typed: those that Hydra's grammar allows but no job can have, and the keys that they set."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, Quote, QuotedString, RangeSweep
from hydra.errors import HydraException

from msaccel.config.bounds import string_problem
from msaccel.config.groups import GROUPS
from msaccel.config.messages import without_passwords
from msaccel.config.suggestions import choose, known_keys, write_instead
from msaccel.errors import ConfigError, on_one_line
from msaccel.files import expand_user
from msaccel.schema import Config, logged
from msaccel.tracking.credentials import without_password

_MAX_BRACKETS = 100  # Hydra's parser calls itself several times for each nested one
_SWEPT = "cannot be set here; write what is swept after -m, for example run.py -m seed=0,1,2."  # the end of a sentence


def problems(overrides: Iterable[str]) -> list[str]:
    """A sentence for each override that would end Hydra with a traceback, or that it would misunderstand."""
    return [problem for override in overrides for problem in _problems_of(override)]


def _problems_of(text: str) -> Iterator[str]:
    name, equals, _ = text.partition("=")
    shown = f"{without_passwords(name)}=…" if "tracking" in name and equals else without_passwords(text)
    typed = on_one_line(shown) or "''"
    if re.search(r"\d(_?\d){4000}", text):  # Python's own refusal to read it would end Hydra
        yield f"{typed} holds a number that is too large for any key; write a smaller one."
        return
    if len(re.findall(r"[\[{(]", text)) > _MAX_BRACKETS:
        yield f"{typed} has more than {_MAX_BRACKETS} brackets; write fewer."
        return
    if re.match(r"\+*hydra\.sweeper(\.params\b|=\{\s*params\b)", text):  # Hydra reads them from files alone
        yield f"{typed} {_SWEPT}"
        return
    try:
        parsed = OverridesParser.create().parse_override(text)
    except (HydraException, RecursionError, ValueError):
        yield _unreadable(text, typed)
        return
    key, value = parsed.key_or_group, parsed.value()
    if not key:
        yield f"{typed} has no key; write key=value."
    elif parsed.package is not None:
        yield f"{typed} names a place for the keys of {key}, which have theirs; write {key}=OPTION without @."
    elif parsed.is_delete():
        yield f"{typed} deletes a key, and a job needs all of them; leave it out."
    elif key in (*GROUPS, "accel", "experiment", "hydra") or "/" in key:
        yield from _not_options(parsed, typed)
        if typed.startswith("+") and not isinstance(value, dict):
            yield f"{typed} chooses an option that replaces another; write it without +."
    elif key in ("hydra.launcher", "hydra.sweeper") and not isinstance(value, dict):
        yield f"{typed} names no option; {choose(key.replace('.', '/'))}."
    elif key.startswith("hydra.") and isinstance(value, str) and (reason := string_problem(value)):
        yield f"{typed} {reason}."
    if isinstance(value, RangeSweep) and not (value.step and math.isfinite((value.start or 0) + value.step)):
        yield f"{typed} has no end; write range(START,STOP,STEP) with other numbers."
    if isinstance(value, Glob) and not all(isinstance(word, str) for word in [*value.include, *value.exclude]):
        yield f"{typed} cannot be read; write names without quotes, such as glob([a*,b])."
    for name, option in leaves(key, value):
        if name.startswith("hydra.callbacks"):
            yield f"{typed} takes out what keeps passwords from being stored and checks sweeps; leave it out."
        elif name == "hydra.output_subdir" and option is not None:
            yield f"{typed} would put Hydra's files among the job's, whose settings are in config.yaml; leave it out."
        elif name == "hydra.job.chdir" and option:
            yield f"{typed} would look for relative paths in the job's folder, which goes once it ended; leave it out."
        elif name in ("hydra.run.dir", "hydra.sweep.dir") and str(option).startswith("~"):
            try:
                yield f"{typed} would be a folder named ~; write {override(name, str(expand_user(option)))}."
            except ConfigError as error:
                yield str(error)
        elif name.startswith("hydra.sweeper.params"):
            yield f"{typed} {_SWEPT}"
        elif option == {}:
            yield f"{name}={{}} sets nothing; leave it out."
        group, _, last = name.partition(".")
        if last == "name" and group in GROUPS:
            yield f"{name} is set by the choice of {group}; {choose(group, option)}."


def _unreadable(text: str, typed: str) -> str:
    if text in known_keys():
        return f"{typed} has no value; write {typed}= with one."
    if re.fullmatch(r"[\w.-]+", text):
        return f"{typed} cannot be read; {write_instead(text)}."
    return f"{typed} cannot be read; write key=value, with quotes around special characters."


def _not_options(override: Override, typed: str) -> Iterator[str]:
    """A sentence if a group is given anything but the name of an option, or for `accel` a list of names."""
    key, value = override.key_or_group, override.value()
    for choice in value.list if isinstance(value, ChoiceSweep) else [value]:
        names = choice if isinstance(choice, list) and key == "accel" else [choice]
        if isinstance(choice, (dict, Glob)):
            continue  # keys of the group, or options that are looked up later
        texts = [str(getattr(name, "text", name)) for name in names]
        if not names or not all(isinstance(name, (str, QuotedString)) for name in names):
            yield f"{typed} names no option; {choose(key)}."
        elif files := [text for text in texts if re.fullmatch(r"[./].*|.*(/|\.ya?ml)", text)]:
            yield f"{typed} names a file, not an option; {choose(key, PurePath(files[0]).stem)}."
        elif len({*texts}) < len(texts):
            yield f"{typed} names a method twice; write each once."


def keys_set_by(overrides: Iterable[str]) -> Iterator[str]:
    """Dotted keys, down to single values: `optimizer={lr: 0.1}` sets `optimizer.lr`, and `optimizer=adam` the group."""
    parser = OverridesParser.create()
    for override in overrides:
        try:
            parsed = parser.parse_override(override)
        except HydraException:  # a change that an earlier version recorded, whose value has no quotes
            yield override.partition("=")[0].lstrip("+~")
        else:
            yield from (key for key, _ in leaves(parsed.key_or_group, parsed.value()))


def typed_store(config: Config, overrides: Iterable[str]) -> list[str]:
    """The store as far as these overrides set it, as words of another command; without a password."""
    places = {"tracking.uri": config.tracking.uri, "tracking.artifacts": config.tracking.artifacts}
    typed = {*keys_set_by(overrides)}
    return [override(key, without_password(value)) for key, value in places.items() if key in typed and value]


def uri_option(store: Iterable[str]) -> list[str]:
    """`--tracking-uri` and its value, where one of these overrides gives the store's address."""
    parsed = OverridesParser.create().parse_overrides(list(store))
    uris = [one.value() for one in parsed if one.key_or_group == "tracking.uri"]
    return [word for uri in uris if isinstance(uri, str) for word in ("--tracking-uri", uri)]


def override(key: str, value: str) -> str:
    """`key=value` for a setting as it is logged, in quotes where the grammar of overrides would read something else."""
    try:
        read = logged(OverridesParser.create().parse_override(f"{key}={value}").value())
    except (HydraException, ValueError, RecursionError):  # the last two: of thousands of digits or brackets
        read = ""
    return f"{key}={value if read == value else in_quotes(value)}"


def in_quotes(text: str) -> str:
    """A text as a value in the grammar of overrides, whatever signs are in it."""
    return str(QuotedString(text, Quote.single).with_quotes())


def leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of what an override sets, which may be a dictionary."""
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from leaves(f"{key}.{name}", part)
    else:
        yield key, value
