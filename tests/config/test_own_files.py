"""Files of the user's own beside conf/: what Hydra would ignore, or do without a word, is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra._internal.utils import get_args_parser

from msaccel.config import compose
from msaccel.config.own_files import refusals
from msaccel.errors import ConfigError

RECIPE = "# @package _global_\n"
CALLBACKS = {
    "one less": "experiment/mine.yaml: {hydra: {callbacks: {secrets: null}}}",
    "another in its place": "experiment/mine.yaml: {hydra: {callbacks: {secrets: {_target_: os.getcwd}}}}",
    "one more": "experiment/mine.yaml: {hydra: {callbacks: {more: {_target_: '${oc.env:NO_SUCH}'}}}}",
}


def said(folder: Path, *typed: str) -> list[str]:
    compose.register()
    return [*refusals(get_args_parser().parse_args([f"--config-dir={folder}", *typed]))]


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


@pytest.mark.parametrize("callbacks", CALLBACKS)
@pytest.mark.parametrize("typed", [("experiment=mine",), ("-m", "experiment=mine", "seed=0,1")], ids=str)
def test_other_callbacks_are_refused_before_they_are_made(
    tmp_path: Path, callbacks: str, typed: tuple[str, ...]
) -> None:
    name, _, text = CALLBACKS[callbacks].partition(": ")
    put(tmp_path, name, RECIPE + text)
    (sentence,) = said(tmp_path, *typed)
    assert sentence.startswith("hydra.callbacks in a file of yours") and sentence.endswith("; leave it out.")
    assert said(tmp_path, "seed=1") == []


@pytest.mark.parametrize("name", ["model/lenet.yaml", "config.yaml"])
def test_a_file_with_the_name_of_one_in_conf_is_refused(tmp_path: Path, name: str) -> None:
    put(tmp_path / "a", name, "{}")
    its_own = tmp_path / "a" / name
    refused = [f"{its_own} has the name of a file in conf/, which is read in its place; give it another name."]
    assert said(tmp_path / "a", "model=lenet") == refused
    (tmp_path / "b").mkdir()
    assert said(tmp_path / "b", f"hydra.searchpath=[{tmp_path}/a]") == refused


def test_recipes_and_options_are_left_alone(tmp_path: Path) -> None:
    put(tmp_path, "experiment/mine.yaml", f"{RECIPE}seed: 3")
    put(tmp_path, "mine.yaml", "defaults: [config]")
    assert said(tmp_path, "experiment=mine") == said(tmp_path, "--config-name=mine") == said(tmp_path / "none") == []


def test_a_primary_configuration_without_callbacks_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "mine.yaml", "seed: 1")
    assert [sentence.split()[0] for sentence in said(tmp_path, "--config-name=mine")] == ["hydra.callbacks"]
    (sentence,) = said(tmp_path, f"--config-path={tmp_path}")
    assert sentence.startswith("--config-path would replace conf/")


def test_what_cannot_be_composed_is_one_sentence(tmp_path: Path) -> None:
    put(tmp_path, "optimizer/bad.yaml", "lr: [")
    with pytest.raises(ConfigError, match=r"bad\.yaml, line 1: this is no YAML of settings"):
        said(tmp_path, "optimizer=bad")


def test_a_search_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (sentence,) = said(tmp_path, "hydra.searchpath=[file:///no/such]")
    assert sentence == "/no/such in hydra.searchpath is no folder; write one that is there."
