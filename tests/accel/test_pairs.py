"""Every method, and every pair of methods, trains each kind of network or is refused with a reason."""

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from msaccel.accel import methods
from msaccel.config.checks import refusals
from msaccel.files import ROOT
from msaccel.schema import Config
from tests.running import Store
from tests.training.test_gpt_jobs import SMALL as SMALL_GPT
from tests.training.test_gpt_jobs import WORDS

# Two virtual ranks, for the methods that need them.
COMMON = ("device=cpu2x2", "device.ranks_per_server=1", "device.simulate=always", "train.batch_size=4")
# `dimreduce` needs updates enough for its snapshots and its second stage; for all else a tenth of them will do.
LONG = ("train.epochs=6", "tracking.every=50")
SHORT = ("train.epochs=3", "data.limit_train=220", "tracking.every=5")
IMAGES = ("data=synthetic", "data.train_size=1100", "data.test_size=70")
NETWORKS = {
    "lenet": ("model=lenet", *IMAGES),
    "resnet20": ("model=resnet50", "model.depth=20", "model.image_size=16", *IMAGES),
    "airbench": ("model=airbench", "model.widths=[8,16,16]", *IMAGES),
    "gpt": SMALL_GPT,
}
PAIRS = list(combinations(sorted(methods()), 2))
PAGES = ROOT / "docs" / "methods"
ONLY_RESNET = {"lessbn", "resize"}
# Pairs that exclude each other with any network; methods of `ONLY_RESNET` need residual blocks or any size as well.
EXCLUDED = {
    *combinations(("adasum", "localsgd", "powersgd", "sam"), 2),
    ("centralize", "clip"),
    ("adasum", "dimreduce"),
    ("adasum", "freeze"),
    ("average", "localsgd"),
    ("centralize", "dimreduce"),
    ("dimreduce", "freeze"),
    ("dimreduce", "localsgd"),
    ("freeze", "localsgd"),
    ("freeze", "powersgd"),
}


def is_refused(names: Sequence[str], network: str) -> bool:
    return (not ONLY_RESNET.isdisjoint(names) and network != "resnet20") or tuple(names) in EXCLUDED


@pytest.mark.parametrize("network", NETWORKS)
def test_every_pair_composes_or_is_refused_for_its_reasons(composed: Callable[..., Config], network: str) -> None:
    """Without training: a sentence for each method that the network cannot have, and one that names an excluded pair.

    The methods are composed together, then taken apart: composing each pair would take a minute.
    """
    overrides = (*NETWORKS[network], *COMMON, *LONG)
    together = composed(*overrides, f"accel=[{','.join(methods())}]")
    for names in PAIRS:
        expected = [{name} for name in names if name in ONLY_RESNET and network != "resnet20"]
        expected += [set(names)] if names in EXCLUDED else []
        config = replace(together, accel={name: together.accel[name] for name in names})
        reasons = refusals(config)
        named = [set(re.findall(r"accel=(\w+)", reason)) for reason in reasons]
        assert sorted(map(sorted, named)) == sorted(map(sorted, expected)), (names, reasons)
        assert bool(reasons) == is_refused(names, network), names
    some = ("clip", "sam")
    alone = composed(*overrides, f"accel=[{','.join(some)}]")
    assert alone.accel == {name: together.accel[name] for name in some}, "as if each had been composed with its pair"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(" ".join(random.Random(0).choices(WORDS, k=2500)))
    return path


def test_the_table_of_pairs_says_which_are_refused() -> None:
    header, *lines = re.findall(r"^\| (?:\*\*|\| \[)`.+\|$", (PAGES / "README.md").read_text(), re.M)
    columns = re.findall(r"\[`(\w+)`\]", header)
    rows = [[cell.strip("*` ") for cell in line.strip("|").split("|")] for line in lines]
    assert [row[0] for row in rows] == columns == sorted(methods())
    cells = {(row[0], other): cell for row in rows for other, cell in zip(columns, row[1:], strict=True)}
    reasons = re.findall(r"^\| (\w) \| ", (PAGES / "README.md").read_text(), re.M)
    assert {pair for pair in PAIRS if cells[pair] in reasons} == EXCLUDED
    assert all(cells[pair] == cells[pair[::-1]] and cells[pair] in {"✓", *reasons} for pair in PAIRS)
    assert all(cells[name, name] == "–" for name in columns)


def test_the_list_of_methods_has_the_first_sentence_of_each_page() -> None:
    rows = re.findall(r"^\| \[`(\w+)`\]\(\w+\.md\) \| .+ \| (.+) \|$", (PAGES / "README.md").read_text(), re.M)
    pages = {name: (PAGES / f"{name}.md").read_text().split("\n\n")[1] for name in sorted(methods())}
    assert rows == [(name, " ".join(text.split())) for name, text in pages.items()]


@pytest.mark.parametrize("name", sorted(methods()))
def test_the_page_of_a_method_names_what_is_refused_with_it(name: str) -> None:
    (others,) = re.findall(r"\*\*With others\.\*\*.*?(?=\n\n|\Z)", (PAGES / f"{name}.md").read_text(), re.S)
    excluded = {other for pair in EXCLUDED if name in pair for other in pair} - {name}
    assert {other for other in excluded if f"`{other}`" not in others} == set()


def test_the_baseline_of_every_method_is_in_the_protocol() -> None:
    page = (ROOT / "docs" / "comparing.md").read_text()
    table = page.partition("## The baseline of each method\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \[`(\w+)`\]\(methods/\w+\.md\) \| (.+) \|$", table, re.M)
    of_steps = "same micro-batch, same global batch"
    assert rows == [(name, of_steps if method.steps_key else method.baseline) for name, method in methods().items()]


HOURS = 4 * 3600  # in seconds; only a hang reaches them


@pytest.mark.soak
@pytest.mark.timeout(HOURS)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("two_stages", [False, True], ids=["others", "dimreduce"])
def test_every_pair_trains_or_says_why_not(store: Store, text: Path, network: str, two_stages: bool) -> None:
    every = [(name,) for name in sorted(methods())] + PAIRS
    lists = [names for names in every if ("dimreduce" in names) == two_stages]
    overrides = (*NETWORKS[network], *COMMON, *(LONG if two_stages else SHORT))
    overrides += (f"data.root={text}",) if network == "gpt" else ()
    accel = ",".join(f"[{','.join(names)}]" for names in lists)
    ended = Store(store.folder, timeout=HOURS).run("-m", f"accel={accel}", *overrides)
    refused = [line for line in ended.stderr.splitlines() if " s0: REFUSED: " in line]
    runs = {frozenset(run.data.tags["accel"].split("+")): run for run in store.runs()}
    for number, names in enumerate(lists, 1):
        reasons = [line for line in refused if line.startswith(f"[{number}/{len(lists)}] ")]
        assert len(reasons) == is_refused(names, network), (names, reasons)
        if reasons:
            assert any(f"accel={name}" in reasons[0] for name in names)
            continue
        run = runs.pop(frozenset(names))
        assert run.info.status == "FINISHED", names
        assert math.isfinite(run.data.metrics["eval/loss"]), names
    assert not runs
