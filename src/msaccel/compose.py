"""From what Hydra composed to a typed `Config`, to YAML and back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from msaccel.accel import label, methods
from msaccel.errors import ConfigError
from msaccel.paths import CONF, ROOT
from msaccel.sentences import sentence, unknown_key
from msaccel.settings import GROUPS, Config


def register() -> None:
    """Puts the schemas where the defaults lists in `conf/` find them."""
    store = ConfigStore.instance()
    store.store("schema", Config)
    for group, options in GROUPS.items():
        for name, schema in options.items():
            store.store(name, schema, group=f"schema/{group}")
    store.store("none", {"none": {}}, group="schema/accel")
    for name, method in methods().items():
        store.store(name, {name: method.Settings}, group="schema/accel")
    OmegaConf.register_new_resolver("msaccel.root", lambda: str(ROOT), replace=True)
    OmegaConf.register_new_resolver("msaccel.groups", _groups, replace=True)


def _groups() -> str:
    """The groups of `conf/` and their options, for `--help`; the schemas beside them are no choice of the user's."""
    groups = [folder for folder in sorted(CONF.iterdir()) if folder.is_dir() and folder.name != "hydra"]
    return "\n".join(f"{folder.name}: {', '.join(sorted(file.stem for file in folder.iterdir()))}" for folder in groups)


def typed(composed: DictConfig) -> Config:
    """The typed, resolved configuration of one job.

    Raises:
        ConfigError: a value is missing or of the wrong type, or `none` stands beside other accelerators.
    """
    try:
        config: Any = OmegaConf.to_object(composed)
    except OmegaConfBaseException as error:
        raise ConfigError(sentence(error)) from error
    if strays := [unknown_key(name) for name in _strays(config)]:
        raise ConfigError("\n".join(strays))
    if "none" in config.accel:
        if len(config.accel) > 1:
            others = [name for name in config.accel if name != "none"]
            raise ConfigError(
                f"accel names none together with {', '.join(others)}; write accel={label(others).replace('+', ',')}"
                f"{' in brackets' if len(others) > 1 else ''} or accel=none."
            )
        config.accel = {}
    config.tracking.uri = chosen_uri(config.tracking.uri)
    config.tracking.artifacts = str(absolute(config.tracking.artifacts))
    return config


def _strays(node: Any, prefix: str = "") -> Iterator[str]:
    """Dotted names of keys that were added with `+` and belong to no schema."""
    items = node if isinstance(node, dict) else vars(node)
    known = {field.name for field in fields(node)} if is_dataclass(node) else set(items)
    for name, value in items.items():
        if name not in known:
            yield f"{prefix}{name}"
        elif isinstance(value, dict) or is_dataclass(value):
            yield from _strays(value, f"{prefix}{name}.")


def default_uri() -> str:
    return f"sqlite:///{ROOT}/mlruns/mlflow.db"


def chosen_uri(configured: str) -> str:
    """The store: what was configured, or MLFLOW_TRACKING_URI where that is only the default."""
    given = os.environ.get("MLFLOW_TRACKING_URI")
    return given if given and configured == default_uri() else configured


def absolute(path: str) -> Path:
    """A path of the user's, from the repository's root."""
    return ROOT / Path(path).expanduser()


def save(config: Config, path: Path) -> None:
    """Writes the resolved configuration as YAML, in one piece: a reader sees the whole file or none."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    OmegaConf.save(OmegaConf.structured(config), temporary)
    os.replace(temporary, path)


def load(path: Path) -> Config:
    """Reads what `save` wrote, checked against the same schemas.

    Raises:
        ConfigError: the file is not the configuration of a job.
    """
    try:
        raw = OmegaConf.load(path)
        if not isinstance(raw, DictConfig):
            raise ConfigError(f"{path} holds no configuration; give one that msaccel wrote.")
        schema = OmegaConf.structured(Config)
        for group, options in GROUPS.items():
            schema[group] = options[raw[group].name]
        for name in raw.accel:
            schema.accel[name] = methods()[str(name)].Settings
        merged: Any = OmegaConf.to_object(OmegaConf.merge(schema, raw))
        return merged
    except (OmegaConfBaseException, KeyError, AttributeError, ValueError) as error:
        raise ConfigError(f"{path} is not the configuration of a job: {sentence(error)}") from error
