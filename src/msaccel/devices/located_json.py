"""JSON whose values know their line, so that an error message can name it.

`json` parses the values and PyYAML, since JSON is YAML, finds their lines.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from msaccel.errors import ConfigError, on_one_line
from msaccel.files import open_regular

MAX_BYTES = 1_000_000  # a table of a thousand ranks has 80,000
MAX_DEPTH = 100  # brackets within brackets; a rank table has four
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where PyYAML was built with it: ten times as fast
_KINDS = {bool: "true or false", type(None): "null", float: "a number", str: "a text"}


class Location(NamedTuple):
    """Where a value was read: a file or an option, and its line, or 0."""

    source: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.source}, line {self.line}" if self.line else self.source

    def seen_from(self, other: Location) -> str:
        """How a message about the other location refers to this one."""
        return f"on line {self.line}" if self.line and self.source == other.source else f"in {self}"


@dataclass(frozen=True)
class Value:
    """A value of JSON: a scalar, a list of values, or a dictionary of values."""

    value: Any
    location: Location
    name: str

    def error(self, text: str) -> ConfigError:
        return ConfigError(f"{self.location}: {text}")

    def members(self, *required: str, optional: tuple[str, ...] = ()) -> dict[str, Value]:
        """The values by key.

        Raises:
            ConfigError: this is no object, a key is missing, or one is unknown.
        """
        if not isinstance(self.value, dict):
            raise self._wrong_kind(f"{{ }} with {', '.join(required)}")
        for key, value in self.value.items():
            if key not in (*required, *optional):
                raise value.error(
                    f"{on_one_line(key)} is no key of {self.name} in version 1.0; write one of "
                    f"{', '.join((*required, *optional))}, or leave it out."
                )
        if missing := [key for key in required if key not in self.value]:
            raise self.error(f"{self.name} that begins here has no {' and no '.join(missing)}; add it.")
        return self.value

    def items(self) -> list[Value]:
        """The values of a list.

        Raises:
            ConfigError: this is no list.
        """
        if not isinstance(self.value, list):
            raise self._wrong_kind("a list in [ ]")
        return self.value

    def text(self, example: str) -> str:
        """A text.

        Raises:
            ConfigError: this is none.
        """
        if not isinstance(self.value, str):
            raise self._wrong_kind(f'a text in quotes, such as "{example}"')
        return self.value

    def count(self) -> int:
        """A whole number, which rank tables write as a text: "0", "1", …

        Raises:
            ConfigError: this is none.
        """
        if not re.fullmatch(r"0|[1-9][0-9]{0,5}", self.text("0")):
            raise self.error(f'{self.name} is "{on_one_line(self.value)}"; write a whole number, such as "0".')
        return int(self.value)

    def _wrong_kind(self, wanted: str) -> ConfigError:
        is_list = "a list" if isinstance(self.value, list) else "an object"
        return self.error(f"{self.name} is {_KINDS.get(type(self.value), is_list)}; write {wanted}.")


def read_text(path: Path) -> str:
    """The text of a small file.

    Raises:
        ConfigError: it cannot be read, is larger than a megabyte or not UTF-8.
    """
    try:
        with open_regular(path) as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); name a regular file.") from error
    if len(raw) > MAX_BYTES:
        line = Location(str(path), raw.count(b"\n") + 1)
        raise ConfigError(f"{line}: the file goes on after 1 MB; name a file of the right kind, which is smaller.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = Location(str(path), raw.count(b"\n", 0, error.start) + 1)
        raise ConfigError(f"{line}: this is no UTF-8 text; save the file as UTF-8.") from error


def parse(path: Path, text: str, name: str = "the table") -> Value:
    """The value that the text of a file holds.

    Raises:
        ConfigError: it is not JSON, nested too deep, or an object has a key twice.
    """
    outline = _outline(text)
    depth, line = 0, 1
    for character in re.findall(r"[][{}\n]", outline):
        line += character == "\n"
        depth += (character in "[{") - (character in "]}")
        if depth == MAX_DEPTH:
            raise ConfigError(
                f"{Location(str(path), line)}: brackets are nested too deep; name a file of the right kind."
            )
    try:
        # No number is used as one, and int() refuses thousands of digits. Pairs show a key that stands twice.
        content = json.loads(text, parse_int=float, object_pairs_hook=tuple)
    except json.JSONDecodeError as error:
        # A comma that is missing, or one too many, is a fault of the line before the one where json stopped.
        before = "delimiter" in error.msg or text[error.pos : error.pos + 1] in ("", "]", "}")
        read = text[: error.pos].rstrip() if before else text[: error.pos]
        location = Location(str(path), read.count("\n") + 1)
        raise ConfigError(f"{location}: this is not JSON ({error.msg}); put the line right.") from error
    return _located(content, yaml.compose(outline, _LOADER), str(path), name)


def _outline(text: str) -> str:
    """The text in a form that PyYAML can read, with each value on its original line: strings are emptied, the colon
    follows its key, and tabs and other characters that YAML does not accept become spaces."""
    empty = re.sub(r'"(?:[^"\\]|\\.)*"(?:(\s*):)?', lambda m: '""' if m[1] is None else f'"": {m[1]}', text)
    return re.sub(r"[^\n -~]", " ", empty)


def _located(content: Any, node: yaml.Node, source: str, name: str) -> Value:
    """The values that `json` has read with the lines of PyYAML's nodes, which have the same structure."""
    location = Location(source, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        members: dict[str, Value] = {}
        for (key, inner), (key_node, inner_node) in zip(content, node.value, strict=True):
            if key in members:
                here = Location(source, key_node.start_mark.line + 1)
                first = members[key].location.seen_from(here)
                raise ConfigError(f"{here}: {on_one_line(key)} stands already {first}; keep one.")
            members[key] = _located(inner, inner_node, source, on_one_line(key))
        return Value(members, location, name)
    if isinstance(node, yaml.SequenceNode):
        pairs = zip(content, node.value, strict=True)
        return Value([_located(*pair, source, f"an entry of {name}") for pair in pairs], location, name)
    return Value(content, location, name)
