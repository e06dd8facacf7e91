"""Checks the user's own configuration files, from `--config-dir` or `hydra.searchpath`, before Hydra acts on them."""

from __future__ import annotations

import warnings
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from msaccel.config.compose import composing
from msaccel.files import CONF


def refusals(arguments: Namespace) -> Iterator[str]:
    """A sentence for each file without effect, and for callbacks other than ours, which Hydra would run unasked.

    Args:
        arguments: the command line as Hydra reads it.

    Raises:
        ConfigError: Hydra cannot compose them.
    """
    if arguments.config_path:
        yield "--config-path would replace conf/, which has all defaults; write --config-dir with a folder of your own."
        return
    folder = Path(arguments.config_dir or CONF).absolute()
    reads_others = arguments.config_dir or arguments.config_name or "searchpath" in str(arguments.overrides)
    if not reads_others or not folder.is_dir():  # Hydra itself says that it is no folder
        return
    config = _composed(folder, arguments.config_name or "config", arguments.overrides)
    for source in config.hydra.runtime.config_sources:
        if source.schema == "file" and not Path(source.path).is_dir():
            yield f"{source.path} in hydra.searchpath is no folder; write one that is there."
        elif source.schema == "file" and not CONF.samefile(source.path):
            for path in sorted(CONF.rglob("*.yaml")):
                own = Path(source.path) / path.relative_to(CONF)
                if own.exists():
                    yield f"{own} has the name of a file in conf/, which is read in its place; give it another name."
    if _callbacks(config) != _callbacks(OmegaConf.load(CONF / "config.yaml")):
        yield (
            "hydra.callbacks in a file of yours takes out what keeps passwords from being stored and checks sweeps, or "
            "adds to it; leave it out."
        )


def _composed(folder: Path, name: str, overrides: list[str]) -> DictConfig:
    """What Hydra composes from conf/ and a folder, without acting on it."""
    version.setbase("1.3")
    search_path = create_config_search_path(str(CONF))
    search_path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema", path=None))
    try:
        with composing(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # problems of the folder are reported here instead
            return Hydra.create_main_hydra2("run", search_path).compose_config(
                name, overrides, RunMode.MULTIRUN, validate_sweep_overrides=False
            )
    finally:
        GlobalHydra.instance().clear()


def _callbacks(config: Any) -> Any:
    found = OmegaConf.select(config, "hydra.callbacks")
    return OmegaConf.to_container(found) if OmegaConf.is_config(found) else found
