"""JSON whose every value knows its line, so that a refusal can name it.

`json` decides what is JSON; its text is then read once more, token by token, for the lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from msaccel.errors import ConfigError, on_one_line

LIMIT = 1_000_000  # bytes; a table of a thousand ranks has 80,000
DEEPEST = 100  # brackets within brackets; a rank table has four
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}:,]|[^][{}:,"\s]+')
_KINDS = {bool: "true or false", type(None): "null", float: "a number", str: "a text"}


class Place(NamedTuple):
    """Where something was read: a file or an option, and the line in it, or 0."""

    source: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.source}, line {self.line}" if self.line else self.source

    def beside(self, other: Place) -> str:
        """This place as a sentence about the other one names it."""
        return f"on line {self.line}" if self.line and self.source == other.source else f"in {self}"


@dataclass(frozen=True)
class Value:
    """A value of JSON: a scalar, a list of values, or values by key."""

    value: Any
    place: Place
    name: str

    def refusal(self, text: str) -> ConfigError:
        return ConfigError(f"{self.place}: {text}")

    def members(self, *required: str, optional: tuple[str, ...] = ()) -> dict[str, Value]:
        """The values by key.

        Raises:
            ConfigError: this is no object, a key is missing, or one is unknown.
        """
        if not isinstance(self.value, dict):
            raise self._other_kind(f"{{ }} with {', '.join(required)}")
        for key, value in self.value.items():
            if key not in (*required, *optional):
                raise value.refusal(
                    f"{on_one_line(key)} is no key of {self.name} in version 1.0; write one of "
                    f"{', '.join((*required, *optional))}, or leave it out."
                )
        if missing := [key for key in required if key not in self.value]:
            raise self.refusal(f"{self.name} that begins here has no {' and no '.join(missing)}; add it.")
        return self.value

    def items(self) -> list[Value]:
        """The values of a list.

        Raises:
            ConfigError: this is no list.
        """
        if not isinstance(self.value, list):
            raise self._other_kind("a list in [ ]")
        return self.value

    def text(self, example: str) -> str:
        """A text.

        Raises:
            ConfigError: this is none.
        """
        if not isinstance(self.value, str):
            raise self._other_kind(f'a text in quotes, such as "{example}"')
        return self.value

    def count(self) -> int:
        """A number of the table, which is written as a text: "0", "1", …

        Raises:
            ConfigError: this is none.
        """
        if not re.fullmatch(r"0|[1-9][0-9]{0,5}", self.text("0")):
            raise self.refusal(f'{self.name} is "{on_one_line(self.value)}"; write a whole number, such as "0".')
        return int(self.value)

    def _other_kind(self, wanted: str) -> ConfigError:
        is_list = "a list" if isinstance(self.value, list) else "an object"
        return self.refusal(f"{self.name} is {_KINDS.get(type(self.value), is_list)}; write {wanted}.")


def read_text(path: Path) -> str:
    """The text of a small file.

    Raises:
        ConfigError: it cannot be read, is larger than a megabyte or no UTF-8.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(LIMIT + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); name a file that is there.") from error
    if len(raw) > LIMIT:
        line = Place(str(path), raw.count(b"\n") + 1)
        raise ConfigError(f"{line}: the file goes on after 1 MB; name a file of the right kind, which is smaller.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = Place(str(path), raw.count(b"\n", 0, error.start) + 1)
        raise ConfigError(f"{line}: this is no UTF-8 text; save the file as UTF-8.") from error


def parse(path: Path, text: str, name: str = "the table") -> Value:
    """The value that the text of a file is.

    Raises:
        ConfigError: it is not JSON, nested out of all measure, or an object has a key twice.
    """
    try:
        json.loads(text, parse_int=float)  # no number is used as one, and an int of thousands of digits would fail
        tokens = _tokens(text, str(path))
        return _value(next(tokens), tokens, name)
    except json.JSONDecodeError as error:
        # A comma that is missing, or one too many, is a fault of the line before what json stumbled on.
        before = "delimiter" in error.msg or text[error.pos : error.pos + 1] in ("", "]", "}")
        read = text[: error.pos].rstrip() if before else text[: error.pos]
        place = Place(str(path), read.count("\n") + 1)
        raise ConfigError(f"{place}: this is not JSON ({error.msg}); put the line right.") from error
    except RecursionError:
        place = _too_deep(_tokens(text, str(path)))
        raise ConfigError(f"{place}: brackets are nested too deep; name a file of the right kind.") from None


def _too_deep(tokens: Iterator[tuple[str, Place]]) -> Place:
    depth = 0
    while depth < DEEPEST:
        token, place = next(tokens)
        depth += (token in "{[") - (token in "}]")
    return place


def _tokens(text: str, source: str) -> Iterator[tuple[str, Place]]:
    line, end = 1, 0
    for found in _TOKEN.finditer(text):
        line += text.count("\n", end, found.start())
        end = found.start()
        yield found[0], Place(source, line)


def _value(first: tuple[str, Place], tokens: Iterator[tuple[str, Place]], name: str) -> Value:
    token, place = first
    if token == "{":
        members: dict[str, Value] = {}
        while (key := next(tokens))[0] != "}":
            if key[0] == ",":
                continue
            text = json.loads(key[0])
            if text in members:
                raise ConfigError(
                    f"{key[1]}: {on_one_line(text)} stands already {members[text].place.beside(key[1])}; keep one."
                )
            next(tokens)  # the colon
            members[text] = _value(next(tokens), tokens, on_one_line(text))
        return Value(members, place, name)
    if token == "[":
        items = []
        while (item := next(tokens))[0] != "]":
            if item[0] != ",":
                items.append(_value(item, tokens, f"an entry of {name}"))
        return Value(items, place, name)
    return Value(json.loads(token, parse_int=float), place, name)
