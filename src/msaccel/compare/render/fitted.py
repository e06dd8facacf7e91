"""Text that fits a terminal: lines broken between words, and a block for each row where a table would be too wide."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from msaccel.compare.render.format import NONE

_COMMAND = re.compile(r"python (run\.py|-m msaccel) ")
_ARGUMENT = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")  # lines do not break at a quoted blank
_ON = " \\"  # tells the shell that the command continues on the next line
_KEPT = "\N{NO-BREAK SPACE}"
_ANY_WIDTH = 100_000


def wrapped(text: str, columns: int, first: str = "", rest: str = "  ") -> list[str]:
    """Lines of at most `columns` characters. Only words longer than a line are broken; a msaccel command at the end of
    the text can still be copied, since its lines end with a backslash.

    Args:
        first: what the first line begins with.
        rest: what the others begin with.
    """
    found = _COMMAND.search(text)
    prose = text[: found.start()] if found else text
    limit = columns - cell_len(rest)
    words = [piece for word in prose.split(" ") if word for piece in chop_cells(word, limit)]
    command = _ARGUMENT.findall(text[found.start() :]) if found else []
    lines: list[str] = []
    line = [first]
    for number, word in enumerate([*words, *command]):
        of_command = number >= len(words)
        room = columns - (len(_ON) if of_command else 0)
        if len(line) > 1 and cell_len(line[0] + " ".join([*line[1:], word])) > room:
            lines.append(line[0] + " ".join(line[1:]) + (_ON if number > len(words) else ""))
            line = [rest]
        line.append(word)
    return [*lines, line[0] + " ".join(line[1:])]


def show_text(console: Console, text: str, first: str = "", rest: str = "  ") -> None:
    for line in wrapped(text, console.width, first, rest):
        console.print(line, highlight=False, soft_wrap=True)


def show_rows(
    console: Console,
    title: str,
    heads: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str]]],
    names: int = 1,
    right: Collection[str] = (),
) -> None:
    """Prints a table if it fits; otherwise each row's name, and below it the other cells with their headings.

    Args:
        rows: for each row its name and all its cells.
        names: how many of the first cells the name stands for.
        right: headings of the columns that are aligned right.
    """
    show_text(console, title)
    table = Table(box=box.SIMPLE)
    for head in heads:
        table.add_column(head, no_wrap=True, justify="right" if head in right else "left")
    for _, row in rows:
        table.add_row(*row)
    if Measurement.get(console, console.options.update(max_width=_ANY_WIDTH), table).maximum <= console.width:
        console.print(table)
        return
    for name, row in rows:
        show_text(console, name, "  ", "    ")
        fields = zip(heads[names:], row[names:], strict=True)
        cells = "; ".join(f"{head} {cell}" for head, cell in fields if cell != NONE)
        for line in wrapped(_together(cells, console.width), console.width, "    ", "    "):
            console.print(line.replace(_KEPT, " "), highlight=False, soft_wrap=True)
    console.print()


def _together(cells: str, columns: int) -> str:
    """Lines break between cells, unless one is longer than a line."""
    parts = cells.split("; ")
    return "; ".join(part.replace(" ", _KEPT) if cell_len(part) + 5 <= columns else part for part in parts)
