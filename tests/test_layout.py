"""The layout of the source: words that it does not use as identifiers, and class names that are defined once."""

import ast
import io
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

from msaccel.files import ROOT

SOURCES = sorted((ROOT / "src" / "msaccel").rglob("*.py"))
# Words that the code once used where the field has a term of its own.
REPLACED = {
    "together": "comm",
    "lent": "as_tensor",
    "leg": "budget",
    "legs": "budgets",
    "undivided": 'reduction="sum"',
    "in_a_row": "consecutive_skips",
    "take_up": "load_state_dict",
    "recount": "load_state_dict",
    "everything": "a name for what it holds",
    "meters": "metrics",
    "feed": "loader",
    "draws": "random numbers",
    "pictures": "images",
    "outbox": "metric queue",
    "patience": "retry",
    "keeper": "resume checkpoints",
    "roster": "rank environment",
    "standing": "run status",
    "same_sweep": "sweep folder",
    "lookup": "resume",
    "scorer": "score",
    "workbench": "notebook",
    "asked": "requested",
    "told": "message",
    "ours": "fused",
    "unfold": "im2col",
    "judge": "finite check",
    "guard": "loss scaler",
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src" / "msaccel")))
def test_identifiers_are_the_fields_terms(path: Path) -> None:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    found = {token.string for token in tokens if token.type == tokenize.NAME} & REPLACED.keys()
    assert {word: REPLACED[word] for word in found} == {}


def test_a_class_name_is_defined_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.name)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
