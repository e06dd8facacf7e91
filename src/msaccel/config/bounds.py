"""Range checks: one sentence for each value outside the range of its key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msaccel.config.messages import without_passwords
from msaccel.errors import on_one_line
from msaccel.schema import Range, leaves
from msaccel.tracking.credentials import has_password
from msaccel.tracking.status import OUR_TAGS

LONGEST = 4000  # characters of a string
LONGEST_NAME = 255  # bytes of a file's name
DEEPEST = 100  # nested folders: Python makes them by recursion
MAX_ENTRIES = 100  # of a list
_TAG = r"(?!mlflow\.)[\w. /-]{1,250}"
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def bad_values(config: Any) -> list[str]:
    """A sentence for each value that is out of its range, each key checked by itself."""
    return [text for key, value, bounds in leaves(config) if bounds for text in _out_of_range(key, value, bounds)]


def _out_of_range(key: str, value: Any, bounds: Range) -> Iterator[str]:
    text = "(a number of more than 64 bits)" if _huge(value) else str(value)
    if has_password(text):
        yield f"{key} holds an address with a password, which would be stored with the run; leave the password out."
        return
    typed = on_one_line(without_passwords(text))
    if bounds.number and type(value) not in (int, float):
        yield f"{key}={typed} is no number; write for example {key}={bounds.example}."
        return
    if isinstance(value, (list, dict)) and len(value) > MAX_ENTRIES:
        yield f"{key} has {len(value)} entries; write at most {MAX_ENTRIES}."
        return
    if isinstance(value, dict) and bounds.prose:
        if len(str(value)) > LONGEST and all(len(text) <= LONGEST for text in value.values()):
            yield f"{key} has {len(str(value))} characters in all; write at most {LONGEST}."
        for name, text in value.items():
            shown = f"{key}.{on_one_line(without_passwords(name))}"
            yield from _out_of_range(shown, text, bounds)
            if not re.fullmatch(_TAG, name) or name in OUR_TAGS:
                why = "is a tag that msaccel sets" if name in OUR_TAGS else "is no name of a tag"
                yield f"{shown} {why}; write another name, for example {key}.purpose."
        return
    if isinstance(value, list) and not bounds.choices:
        for item in value:
            yield from _out_of_range(key, item, bounds)
        return
    if isinstance(value, str) and (reason := string_problem(value, bounds.prose)):
        yield f"{key}={typed} {reason}."
        return
    if value == "" and bounds == Range():
        yield f"{key}= is empty; write a value, or leave it out."
    if value is None and "auto" in (bounds.choices or ()):  # of type Any, which OmegaConf lets be null
        yield f"{key}=null does not exist; write {key}={bounds.example}."
    if value is None or bounds.prose or (bounds.choices and value in bounds.choices):
        return
    if bounds.choices and (type(value) is not int or isinstance(bounds.choices[0], int)):  # true is no number
        offered = bounds.example or " or ".join(map(str, bounds.choices))
        yield f"{key}={typed} does not exist; write {key}={offered}."
    elif isinstance(value, str):
        if bounds.pattern and not re.fullmatch(bounds.pattern, value):
            yield f"{key}={typed} is not understood; write {key}={bounds.example}."
    elif not _inside(value, bounds):
        allowed = limits(bounds) or "any finite number"
        yield f"{key}={typed} is out of range ({allowed}); write for example {key}={bounds.example}."


def _inside(value: float, bounds: Range) -> bool:
    # NaN is outside every range: NaN - NaN is not 0, and every comparison with it is false.
    return (
        value - value == 0
        and not _huge(value)
        and (bounds.at_least is None or value >= bounds.at_least)
        and (bounds.above is None or value > bounds.above)
        and (bounds.at_most is None or value <= bounds.at_most)
        and (bounds.below is None or value < bounds.below)
    )


def _huge(value: float) -> bool:
    return isinstance(value, int) and abs(value) >= 2**63


def string_problem(text: str, prose: bool = False) -> str:
    """Why a string cannot be the value of any key, as the end of a sentence about it; empty if it can.

    Values are printed in lines, stored as MLflow's parameters (at most 6,000 characters) and, but for prose, used in
    file names.
    """
    if len(text) > LONGEST:
        return f"has {len(text)} characters; write at most {LONGEST}"
    if not prose and text.count("/") > DEEPEST:
        return f"names more than {DEEPEST} folders within each other; write fewer"
    if not prose and any(len(part.encode(errors="replace")) > LONGEST_NAME for part in text.split("?")[0].split("/")):
        return f"has a name of more than {LONGEST_NAME} bytes in it, longer than that of a file; write a shorter one"
    if _UNPRINTABLE.search(text):
        return "contains a line break, a NUL or another character that cannot be printed; leave that out"
    return ""


def limits(bounds: Range) -> str:
    """`at least 0 and below 1`; empty without any."""
    words = {"at_least": "at least", "above": "above", "at_most": "at most", "below": "below"}
    given = {text: getattr(bounds, key) for key, text in words.items()}
    return " and ".join(f"{text} {value:.10g}" for text, value in given.items() if value is not None)
