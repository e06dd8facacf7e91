"""`run.py --help`: every key with its comment, range and default; and an option by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from msaccel.accel import methods
from msaccel.config.groups import GROUPS
from msaccel.config.help import WIDTH, comments, page
from msaccel.config.suggestions import dotted
from msaccel.errors import ConfigError
from msaccel.files import CONF, ROOT
from msaccel.schema import Config

OPTIONS = {
    (group, option): {name for name, _ in dotted(schema, "")} - {"name"}
    for group, options in GROUPS.items()
    for option, schema in options.items()
} | {("accel", name): {key for key, _ in dotted(method.settings, f"{name}.")} for name, method in methods().items()}
COMMON = {name for name, _ in dotted(Config, "") if name not in (*GROUPS, "accel")}


def without_comment(path: Path, keys: set[str]) -> set[str]:
    _, beside = comments(path)
    return {key for key in keys if not beside.get(key)}


def test_every_key_of_a_job_has_a_comment() -> None:
    assert without_comment(CONF / "config.yaml", COMMON) == set()


@pytest.mark.parametrize(("group", "option"), OPTIONS, ids="=".join)
def test_every_key_of_an_option_has_a_comment(group: str, option: str) -> None:
    assert without_comment(CONF / group / f"{option}.yaml", OPTIONS[group, option]) == set()


def test_a_key_without_a_comment_is_found(tmp_path: Path) -> None:
    file = tmp_path / "clip.yaml"
    file.write_text("# clipping\nclip:\n  max_norm: 1.0   # the bound\n  mode: norm\n")
    assert without_comment(file, {"clip.max_norm", "clip.mode"}) == {"clip.mode"}


def test_all_groups_options_and_keys_are_on_the_page() -> None:
    text = page([])
    for path in CONF.glob("*/*.yaml"):
        assert f"    {path.stem}" in text
    lines = [line.strip().partition("=")[0] for line in text.splitlines()]
    assert set(lines) >= COMMON
    assert "  train.batch_size=32         samples in a micro-batch of one rank (at least 1)\n" in text


@pytest.mark.parametrize(("group", "option"), [("accel", "dimreduce"), ("data", "synthetic"), ("model", "resnet50")])
def test_an_option_is_shown_with_its_own_keys_alone(group: str, option: str) -> None:
    text = page([f"{group}={option}"])
    assert text.startswith(f"{group}={option}: {comments(CONF / group / f'{option}.yaml')[0][0]}"[:WIDTH])
    found = {line.strip().partition("=")[0] for line in text.splitlines() if line.startswith(f"  {group}.")}
    assert found == {f"{group}.{key}" for key in OPTIONS[group, option]}


def test_a_method_says_its_slot_and_its_baseline() -> None:
    assert page(["accel=clip", "accel.clip.max_norm=2"]).splitlines()[:6] == [
        "accel=clip: gradient clipping: docs/methods/clip.md",
        "  slot: network → data → backward → accumulate → reduce → finite_check →",
        "    [transform] → apply → evaluate",
        "  baseline: accel=none (without clipping)",
        "  accel.clip.max_norm=2.0     the bound of the gradient (at least 1e-30 and at",
        "                              most 1e+30)",
    ]
    assert "(same micro-batch, and same global batch)" in page(["accel=[accum,clip]"])


def test_a_recipe_shows_what_it_sets() -> None:
    text = page(["experiment=grad_accum_lenet"])
    assert "  accel=[accum]\n" in text and "  accel.accum.reduction=sum\n" in text and "python run.py -m" in text


SEVERAL = ("accel=[accum,dimreduce]", "model=resnet50", "data=synthetic", "optimizer=adam", "schedule=step")


@pytest.mark.parametrize("overrides", [(), SEVERAL], ids=["all", "several"])
def test_it_fits_a_terminal(overrides: tuple[str, ...]) -> None:
    assert [line for line in page(overrides).splitlines() if len(line) > WIDTH or line != line.rstrip()] == []


def test_what_cannot_be_composed_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match="accel=clipp does not exist; write accel="):
        page(["accel=clipp"])


def test_the_command_needs_neither_mindspore_nor_mlflow() -> None:
    shown = (
        "import sys; sys.argv = ['run.py', '--help', 'accel=clip']\n"
        "from msaccel.cli.main import main\n"
        "assert main() == 0\n"
        "assert not {'mindspore', 'mlflow'} & set(sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, timeout=400, cwd=ROOT)
    assert ended.returncode == 0 and ended.stdout.startswith("accel=clip: gradient clipping"), ended.stderr
