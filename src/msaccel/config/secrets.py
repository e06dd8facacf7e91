"""Removes passwords from what Hydra has composed, before it is written into any file.

The composed value decides: an address may be typed in quotes, in braces, as a reference to the environment, or come
from the user's own configuration. A job, and Hydra, only get the address without its password.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from msaccel.config.compose import chosen_uri, strings
from msaccel.config.overrides import in_quotes, leaves
from msaccel.errors import ConfigError
from msaccel.tracking.credentials import has_password, hidden, names_a_secret, without_password

_STORE = "tracking.uri"
_STORED_BY_HYDRA = ("sweeper", "launcher", "job.env_set", "run", "sweep")
_ASSIGNED = re.compile(r"\b(\w+)=")  # variables of a shell
_log = logging.getLogger(__name__)


class HideSecrets(Callback):
    """A callback that removes passwords before Hydra makes the folder of a job or sweep."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        # Hydra turns an exception in a callback into a warning and would go on, so the process ends here.
        try:
            hide(config)
        except ConfigError as error:
            _log.error("%s", error)
            sys.exit(2)
        except Exception:
            _log.exception("a password in tracking.uri could not be ruled out, so nothing is started")
            sys.exit(1)

    on_multirun_start = on_run_start


def hide(config: DictConfig) -> None:
    """Takes the password out of the address of the store, and out of the overrides that gave it.

    Raises:
        ConfigError: the address is mistyped, jobs of a sweep have several, or a key of Hydra's holds a password.
    """
    overrides = OverridesParser.create().parse_overrides(as_typed(config))
    for override in overrides:
        if override.is_sweep_override() and override.key_or_group in (_STORE, "tracking"):
            raise ConfigError(
                f"{override.key_or_group} names several values; write one store, since the runs of a sweep are "
                "compared with each other in one."
            )
    try:
        composed = config.tracking.uri
    except OmegaConfBaseException:
        return  # `compose.typed` refuses the job, and says why
    for name in config.hydra.job.env_set:
        if names_a_secret(str(name)):
            raise ConfigError(f"hydra.job.env_set.{name} would be stored by Hydra; leave it out, and export {name}.")
    for text in strings(_values(OmegaConf.select(config.hydra, "launcher"))):
        for name in filter(names_a_secret, _ASSIGNED.findall(text)):
            raise ConfigError(
                f"hydra.launcher holds {name}, which would be stored with the sweep; leave it out, and export {name} "
                "before you start the sweep: its jobs get your environment."
            )
    if any(map(has_password, strings(_values(config.hydra.overrides.hydra)))):
        raise ConfigError("a key of hydra's holds an address with a password, which would be stored; leave it out.")
    for name in _STORED_BY_HYDRA:
        if any(map(has_password, strings(_values(OmegaConf.select(config.hydra, name))))):
            raise ConfigError(f"hydra.{name} holds an address with a password, which Hydra would store; leave it out.")
    hidden(chosen_uri(composed))
    redacted = without_password(composed)
    if redacted == composed:
        return
    written = [text for override in overrides for text in _without_store(override)]
    written.append(f"{_STORE}={in_quotes(redacted)}")
    with read_write(config), open_dict(config):
        config.tracking.uri = redacted
        config.hydra.overrides.task = written
        config.hydra.job.override_dirname = ",".join(sorted(written))


def _values(node: Any) -> Any:
    """The content of a Hydra node, with references replaced by their values if they have any."""
    if not OmegaConf.is_config(node):
        return node
    try:
        return OmegaConf.to_container(node, resolve=True)
    except OmegaConfBaseException:
        return OmegaConf.to_container(node, resolve=False)


def as_typed(config: DictConfig) -> list[str]:
    """The overrides of a job with their references unresolved: reading the list would resolve them."""
    typed = OmegaConf.to_container(config.hydra.overrides.task, resolve=False)
    assert isinstance(typed, list)
    return typed


def _without_store(override: Override) -> Iterator[str]:
    """An override as it was typed, or what it sets besides the store."""
    values = {} if override.is_sweep_override() else dict(leaves(override.key_or_group, override.value()))
    if _STORE not in values:
        yield str(override.input_line)
    else:
        yield from (f"{key}={_quoted(value)}" for key, value in values.items() if key != _STORE)


def _quoted(value: Any) -> str:
    """A value in the grammar of overrides."""
    return in_quotes(value) if isinstance(value, str) else json.dumps(value)
