"""Every link and every path of the repository that the documentation names exists, and its tables are tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from msaccel.files import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("experiments/**/*.md")),
    *sorted(ROOT.glob("benchmarks/*.md")),
]
TOPS = "benchmarks|conf|docs|experiments|notebooks|src|tests"
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(rf"(?<![\w/.:-])((?:{TOPS})/[\w./<>-]+)")
MODULE = re.compile(r"\b(?<!/)msaccel((?:\.[a-z_]\w*)+)")
# What the pages on adding a method, a network and a data set have their reader create; a test of each does so.
TO_BE_CREATED = (
    *("src/msaccel/accel/agc", "conf/accel/agc.yaml", "tests/test_agc.py", "msaccel.accel.agc"),
    *("src/msaccel/models/allconv", "conf/model/allconv.yaml", "tests/test_allconv.py", "msaccel.models.allconv"),
    *("src/msaccel/data/sets/npz.py", "src/msaccel/data/npz.py", "conf/data/npz.yaml", "tests/test_npz.py"),
    *("msaccel.data.npz", "msaccel.data.sets.npz"),
)
PIPE = re.compile(r"(?<!\\)\|")  # one between backticks divides cells too, unless it is escaped
DELIMITERS = re.compile(r"\|(?: *:?-+:? *\|)+")
# Written by a command that the page names, and not in git.
WRITTEN = ("results/", "mlruns/")


def names() -> list[str]:
    return [str(page.relative_to(ROOT)) for page in PAGES]


def links(text: str) -> Iterator[str]:
    """Targets of links that stay in the repository, without code blocks, which only look like links."""
    for target in LINK.findall(re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as they are made from their text."""
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for target in links(page.read_text()):
        path, _, anchor = unquote(target).partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there.read_text())):
            broken.append(target)
    return broken


def missing_paths(text: str) -> list[str]:
    """Paths from the repository's root that do not exist; `<name>` stands for any name."""
    found = (path.rstrip("./") for path in PATH.findall(text))
    return [
        path
        for path in found
        if not path.startswith(TO_BE_CREATED)
        and not any(part in path for part in WRITTEN)
        and not any(ROOT.glob(re.sub(r"<\w+>", "*", path)))
    ]


def missing_modules(text: str) -> list[str]:
    """Dotted names of msaccel that are neither a module nor something in one."""
    missing = []
    for dotted in MODULE.findall(text):
        inside = ROOT / "src/msaccel" / dotted[1:].replace(".", "/")
        there = [inside.with_suffix(".py"), inside, inside.parent.with_suffix(".py")]
        if not any(path.exists() for path in there) and not f"msaccel{dotted}".startswith(TO_BE_CREATED):
            missing.append(f"msaccel{dotted}")
    return missing


def broken_tables(text: str) -> list[str]:
    """Lines that were meant as rows of a table and are not rendered as such; code blocks are left out.

    The rows of a table follow a header and a delimiter row, one on each line, with equally many cells, and begin and
    end with a pipe; nothing but a blank line, a comment or the end may follow them.
    """
    broken = []
    lines = [line.strip() for line in re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S).splitlines()]
    columns = 0  # of the table that a line is in
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        cells = len(PIPE.findall(line)) - 1
        if not line.startswith("|"):
            if columns and line and not line.startswith("<!--"):
                broken.append(line)  # the end of a row that was wrapped
            elif DELIMITERS.search(line):
                broken.append(line)
            columns = 0
        elif not columns and not DELIMITERS.fullmatch(after):
            broken.append(line)
        elif not line.endswith("|") or cells != (columns or len(PIPE.findall(after)) - 1):
            broken.append(line)
            columns = columns or cells
        else:
            columns = cells
    return broken


@pytest.mark.parametrize("name", names())
def test_tables_are_tables(name: str) -> None:
    assert broken_tables((ROOT / name).read_text()) == []


@pytest.mark.parametrize("name", names())
def test_links_lead_somewhere(name: str) -> None:
    assert broken_links(ROOT / name) == []


@pytest.mark.parametrize("name", names())
def test_paths_exist(name: str) -> None:
    assert missing_paths((ROOT / name).read_text()) == []


@pytest.mark.parametrize("name", names())
def test_modules_exist(name: str) -> None:
    assert missing_modules((ROOT / name).read_text()) == []


def test_where_is_it_has_an_existing_file_in_every_row() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where is it?\n")[2]
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| question")]
    assert len(rows) >= 16
    for row in rows:
        assert PATH.findall(row), f"names no file: {row}"
        assert missing_paths(row) == []


def test_every_page_of_the_documentation_is_linked() -> None:
    """A page that no other page links to is found by nobody."""
    linked = {
        (page.parent / target.partition("#")[0]).resolve() for page in PAGES for target in links(page.read_text())
    }
    assert [name for name in names() if name.startswith("docs/") and ROOT / name not in linked] == []


def test_what_is_broken_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n[here](#a-page) [nowhere](#b) [gone](gone.md) ![too](gone.png) [web](https://a.b/c)\n")
    assert broken_links(page) == ["#b", "gone.md", "gone.png"]
    assert missing_paths("`src/msaccel/gone.py`, tests/accel/test_clip.py and src/msaccel/accel/<method>/") == [
        "src/msaccel/gone.py"
    ]
    assert missing_modules("msaccel.gone.function and msaccel.step.update.Update") == ["msaccel.gone.function"]


def test_a_broken_table_is_found() -> None:
    table = "| a | b |\n|---|---|\n| 1 | `x\\|y` |\n"
    assert broken_tables(f"{table}\n- in a list:\n\n  {table.replace(chr(10), chr(10) + '  ')}\ntext\n") == []
    assert broken_tables(table.replace("\n", " ")) == [table.replace("\n", " ").strip()]
    assert broken_tables("text | a | b | |---|---| | 1 | 2 |\n") == ["text | a | b | |---|---| | 1 | 2 |"]
    assert broken_tables(table + "| 1 | a row that\nis wrapped |\n") == ["| 1 | a row that", "is wrapped |"]
    assert broken_tables(table + "| 1 |\n| `1|2` | 3 |\n") == ["| 1 |", "| `1|2` | 3 |"]
    assert broken_tables(table + "text that follows at once\n") == ["text that follows at once"]
