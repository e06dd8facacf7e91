"""Hydra's composition as a typed `Config`; saving it as YAML and loading it again."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from msaccel.accel import label, methods
from msaccel.config.bounds import bad_values
from msaccel.config.groups import GROUPS
from msaccel.config.messages import not_a_group, sentence, unknown_key, without_passwords
from msaccel.config.overrides import problems
from msaccel.config.suggestions import choose
from msaccel.errors import ConfigError, UserError, on_one_line
from msaccel.files import CONF, ROOT, atomic_write_text, expand_user, open_regular
from msaccel.schema import Config
from msaccel.tracking.credentials import SQLITE, hidden, scrubbed

DEFAULT_URI = f"{SQLITE}{ROOT}/mlruns/mlflow.db"
_MAX_BYTES = 100_000  # of a saved configuration; a long one has 3,000
_MAX_BRACKETS = 1000  # PyYAML takes minutes for 100,000 nested ones


@cache
def register() -> None:
    """Stores the schemas under the names that the defaults lists in `conf/` use."""
    store = ConfigStore.instance()
    store.store("schema", Config)
    for group, options in GROUPS.items():
        for name, schema in options.items():
            store.store(name, schema, group=f"schema/{group}")
    store.store("none", {"none": {}}, group="schema/accel")
    for name, method in methods().items():
        store.store(name, {name: method.settings}, group="schema/accel")
    OmegaConf.register_new_resolver("msaccel.root", lambda: str(ROOT), replace=True)


def from_overrides(overrides: Iterable[str]) -> Config:
    """The configuration of the job that `run.py` with these overrides would train.

    Raises:
        ConfigError: with the message of `run.py`.
    """
    config = typed(composed(overrides))
    if bad := bad_values(config):
        raise ConfigError("\n".join(bad))
    return config


def composed(overrides: Iterable[str]) -> DictConfig:
    """What Hydra composes for these overrides.

    Raises:
        ConfigError: with the message of `run.py`.
    """
    register()
    overrides = quoted(overrides)
    if wrong := problems(overrides):
        raise ConfigError("\n".join(wrong))
    # At the end of a sweep Hydra is still initialized, and refuses to be initialized twice.
    begun = GlobalHydra.instance().is_initialized()
    with nullcontext() if begun else initialize_config_dir(str(CONF), version_base="1.3"), composing():
        return hydra_compose("config", list(overrides))


@contextmanager
def composing() -> Iterator[None]:
    """Turns whatever Hydra raises inside the block into one sentence.

    Besides its own errors this may be any exception, when a value or a file is not as Hydra expects.

    Raises:
        ConfigError: with the sentence.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise ConfigError(sentence(error)) from error


def quoted(overrides: Iterable[str]) -> list[str]:
    """Overrides with values such as normal(0.01) in quotes: Hydra takes a(b) for a function of its own.

    Names and notes (`tracking.`) stay as they were typed.
    """
    normal = re.compile(r"(?<![\"'\w])(normal\([^()]*\))(?![\"'])")
    return [text if text.lstrip("+").startswith("tracking.") else normal.sub(r'"\1"', text) for text in overrides]


def readable(arguments: Iterable[str]) -> list[str]:
    """Command-line arguments in a form that Hydra can parse, with -m first: Hydra accepts it only before overrides."""
    return sorted(quoted(arguments), key=lambda argument: argument not in ("-m", "--multirun"))


def typed(composed: DictConfig) -> Config:
    """The typed, resolved configuration of one job.

    Raises:
        ConfigError: a value is missing or of the wrong type, or `none` stands beside other accelerators.
    """
    with composing():
        config: Any = OmegaConf.to_object(composed)
    if misplaced := list(_misplaced(config)):
        raise ConfigError("\n".join(misplaced))
    for group, options in GROUPS.items():
        chosen = getattr(config, group)
        if options.get(chosen.name) is not type(chosen):
            raise ConfigError(f"{group}.name={on_one_line(chosen.name)} is not the option chosen; {choose(group)}.")
    if "none" in config.accel:
        if len(config.accel) > 1:
            others = [name for name in config.accel if name != "none"]
            raise ConfigError(
                f"accel names none together with {', '.join(others)}; write accel={label(others).replace('+', ',')}"
                f"{' in brackets' if len(others) > 1 else ''} or accel=none."
            )
        config.accel = {}
    every = config.train.eval_every
    if isinstance(every, float) and every.is_integer():  # 1.0 is the same as 1 for a comparison, too
        config.train.eval_every = int(every)
    config.tracking.uri = hidden(chosen_uri(config.tracking.uri))
    if not config.tracking.artifacts or "://" in config.tracking.artifacts:
        address = on_one_line(scrubbed(config.tracking.artifacts))
        raise ConfigError(
            f"tracking.artifacts={address} is no folder; write a folder, or with "
            "tracking.uri=http://HOST:PORT an MLflow server that keeps artifacts there."
        )
    config.tracking.artifacts = str(absolute(config.tracking.artifacts))
    return config


def _misplaced(node: Any, prefix: str = "") -> Iterator[str]:
    """A sentence for each key that is in no schema, added with `+`, and for each value in place of a group of keys."""
    if is_dataclass(node):
        kinds: dict[str, Any] = get_type_hints(type(node))
    else:
        settings = {name: method.settings for name, method in methods().items()}
        kinds = {"none": dict, **settings} if prefix == "accel." else {}
    for name, value in (vars(node) if is_dataclass(node) else node).items():
        key, kind = f"{prefix}{name}", kinds.get(name)
        schema: Any = dict if get_origin(kind) is dict else kind
        of_methods, of_a_group = schema is dict and key != "tracking.tags", is_dataclass(schema)
        if name not in kinds or (isinstance(value, dict) and of_a_group):
            yield unknown_key(key, without_passwords(str(value)))
        elif of_methods or of_a_group:
            yield from _misplaced(value, f"{key}.") if isinstance(value, schema) else [not_a_group(key, value)]


def chosen_uri(configured: str = DEFAULT_URI) -> str:
    """The store: MLFLOW_TRACKING_URI if the configured one is only the default, else the configured one."""
    given = os.environ.get("MLFLOW_TRACKING_URI")
    return with_absolute_file(given if given and configured == DEFAULT_URI else configured)


def with_absolute_file(uri: str) -> str:
    """The address of a SQLite file with its absolute path, since a job is resumed from other folders too."""
    file = uri.removeprefix(SQLITE)
    is_relative = uri.startswith(SQLITE) and file and not file.startswith(("/", ":", "file:"))
    return f"{SQLITE}{expand_user(file).absolute()}" if is_relative else uri


def absolute(path: str) -> Path:
    """A user's path; a relative one starts at the repository's root."""
    return ROOT / expand_user(path)


def save(config: Config, path: Path) -> None:
    """Writes the resolved configuration as YAML, atomically."""
    atomic_write_text(path, OmegaConf.to_yaml(OmegaConf.structured(config)))


def load(path: Path) -> Config:
    """Reads a configuration that `save` wrote, checked against the same schemas.

    Raises:
        ConfigError: the file is not the configuration of a job.
    """
    try:
        raw = _plain_yaml(path)
        if not isinstance(raw, DictConfig):
            raise ConfigError(f"{path} holds no configuration; give one that msaccel wrote.")
        schema = OmegaConf.structured(Config)
        for group, options in GROUPS.items():
            schema[group] = options[raw[group].name]
        for name in raw.accel:
            schema.accel[name] = methods()[str(name)].settings
        merged: Any = OmegaConf.to_object(OmegaConf.merge(schema, raw))
        if bad := bad_values(merged):
            raise ConfigError(f"{path} is not the configuration of a job: {bad[0]}")
        return merged
    except UserError:
        raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); give the configuration of a job.") from error
    except Exception as error:  # OmegaConf's, and whatever it lets through, such as OverflowError
        raise ConfigError(f"{path} is not the configuration of a job: {on_one_line(sentence(error), 300)}") from error


def _plain_yaml(path: Path) -> Any:
    """The content of a YAML file that holds plain values only, as `save` writes them.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no YAML, or too long; or it has aliases, a few lines of which can fill any memory, or
            interpolations, which could copy environment variables into values that are shown.
    """
    with open_regular(path) as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES} bytes")
    try:
        text = content.decode()
        if text.count("[") + text.count("{") > _MAX_BRACKETS:
            raise ValueError("it is nested too deep")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError("it has aliases")
        found = OmegaConf.create(text)
    except (yaml.YAMLError, AssertionError) as error:  # OmegaConf asserts that it is not just a number
        raise ValueError("it is no YAML of settings") from error
    if any("${" in value for value in strings(OmegaConf.to_container(found))):
        raise ValueError("it has ${...} in a value, which msaccel never writes")
    return found


def strings(node: Any) -> Iterator[str]:
    """All strings in nested lists and dictionaries, keys included."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from strings(key)
            yield from strings(value)
    elif isinstance(node, list):
        for value in node:
            yield from strings(value)
