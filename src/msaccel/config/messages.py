"""Messages for errors of Hydra and OmegaConf: one sentence each that says what is wrong, which key, what to write."""

from __future__ import annotations

import re
from dataclasses import is_dataclass
from typing import Any

import yaml
from hydra.errors import HydraException
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from msaccel.config.suggestions import choose, known_keys, resnet, write_instead
from msaccel.errors import on_one_line
from msaccel.tracking.credentials import scrubbed

HYDRA_ERRORS = (HydraException, OmegaConfBaseException)

_KINDS = {
    "Integer": "a whole number",
    "Float": "a number",
    "Boolean": "true or false",
    "bool": "true or false",
    "String": "a text",
}


def sentence(error: BaseException) -> str:
    """The sentence for an error that Hydra or OmegaConf raised; the error's first line if its kind is not known."""
    text = without_passwords("\n".join(dict.fromkeys([str(error), str(error.__cause__ or "")])))
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"{mark.name}, line {mark.line + 1}: this is no YAML of settings ({error.problem}); put the line right."
    if found := re.search(
        r"Could not find '([^']+)'\s+Available options in '([^']+)':\s*(.*?)(\s+Config search path|$)",
        text,
        re.DOTALL,
    ):
        group, option = found[2], found[1].split("/")[-1]
        instead = (group == "model" and resnet(option)) or f"{group}= with one of {', '.join(found[3].split())}"
        return f"{group}={on_one_line(option)} does not exist; write {instead}."
    if found := re.search(r"'hydra/launcher/(\w+)': Could not load 'schema/launcher/", text):
        return f"hydra/launcher={found[1]} needs a package that is missing; run pip install -e . -c constraints.txt."
    if found := re.search(r"Could not load '([\w/]+)/([^']*)'", text):
        return f"{found[1]}={on_one_line(found[2])} does not exist; {choose(found[1])}."
    if text.startswith("In 'hydra/sweeper/optuna': Could not find 'hydra/sweeper/sampler/tpe'"):
        return "hydra/sweeper=optuna needs a package that is missing; run pip install -e '.[tune]' -c constraints.txt."
    if found := re.search(r"(?:Ambiguous value for argument|Sweep parameters) '(.*)'", text):
        return f"{found[1]} names several values; write run.py -m to sweep over them, or quote them as one value."
    override = re.search(r"Could not override '([^']+)'(?:\.\s+To append to your config use \+[^=]*=(.*))?", text)
    full_key = re.search(r"full_key: (\S+)", text)
    name = max((found[1] for found in (override, full_key) if found), key=len, default="")
    if name and (found := re.search(r"is not a subclass of \w+. value: (.*)", text)):
        return not_a_group(name, found[1])
    if found := re.search(r"Value '(.*?)'(?: of type '\w+')? (?:could not be converted to|is not a valid) (\w+)", text):
        return (
            f"{name}={on_one_line(found[1])} has the wrong type; write {name}= with {_KINDS.get(found[2], found[2])}."
        )
    if found := re.search(r"Cannot convert '\w+' to string: '(.*)'", text):
        return f"{name}={on_one_line(found[1])} has the wrong type; write {name}= with a text."
    if "is not Optional" in text:
        if any(key.startswith(f"{name}.") for key in known_keys()):
            return not_a_group(name, "null")
        return f"{name}=null has the wrong type; write {name}= with a value."
    if name and ("Key '" in text or "No match in the defaults list" in text or override):
        return unknown_key(name, (override[2] or "") if override and override[1] == name else "")
    if isinstance(error, InterpolationResolutionError) or isinstance(error.__cause__, InterpolationResolutionError):
        return f"{name or 'a value'} refers with ${{...}} to something that does not exist; write the value itself."
    if "Missing mandatory value" in text:
        return f"{name} has no value; write {name}= with one."
    if found := re.search(r"An item is already at '(.*)'", text):
        return f"{found[1]} has a value already, which + does not replace; write {found[1]}= without +."
    if (found := re.search(r"Error merging override ([\w.]+)=(\S+)", text)) and "is not a ListConfig, list or" in text:
        return f"{found[1]}={on_one_line(found[2])} has the wrong type; write {found[1]}=[{on_one_line(found[2])}]."
    if found := re.search(r"Error merging override (.*)", text):
        return f"{on_one_line(found[1])} cannot be used; write another value."
    first = next((line.strip().rstrip(".:") for line in text.splitlines() if line.strip()), "")
    if isinstance(error, HYDRA_ERRORS):
        return f"{on_one_line(first, 200) or type(error).__name__}."
    return f"Hydra cannot compose these settings ({type(error).__name__}: {on_one_line(first, 200)}); write others."


def without_passwords(text: str) -> str:
    """A text about what was typed, without passwords: also those of addresses whose scheme is missing."""
    text = scrubbed(text)
    return re.sub(r"\S+", _without_name_and_password, text) if "@" in text else text


def _without_name_and_password(word: re.Match[str]) -> str:
    """A word without its first `name:` and what follows up to its last @."""
    text, end = word[0], word[0].rfind("@")
    found = re.compile(r"[^'\"=/](?=:.)").search(text, 0, max(0, end))
    if not found:
        return text
    start = max(text.rfind(sign, 0, found.end()) for sign in "'\"=/") + 1
    return f"{text[:start]}{text[end + 1 :]}"


def not_a_group(name: str, value: Any) -> str:
    """The sentence for a value that was given to a group of keys."""
    typed = on_one_line(without_passwords(str(value)))
    shown = "null" if value is None else "${...}" if is_dataclass(value) else typed
    return f"{name}={shown} has the wrong type, since {name} holds other keys; write {name}.key=value."


def unknown_key(name: str, value: str = "") -> str:
    """The sentence for a key that this job does not have: misspelt, or of an option that was not chosen.

    Args:
        value: the value it was given, as typed.
    """
    if name.startswith("tracking.tags."):
        return f"{on_one_line(name)} is a new key; write +{on_one_line(f'{name}={value}' if value else name)}."
    known = known_keys()
    if owner := known.get(name) or next((known[key] for key in known if key.startswith(f"{name}.")), ""):
        return f"{name} has no effect here; it belongs to {owner}: choose that, or leave {name} out."
    return f"{on_one_line(name)} is not a key; {write_instead(name, value)}."
