"""What must not lie in the folder of a job or sweep, since its files are removed when all have finished."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from msaccel.config.compose import absolute, chosen_uri
from msaccel.errors import ConfigError
from msaccel.tracking.credentials import sqlite_file


def lost_with(key: str, folder: Path, config: DictConfig) -> str:
    """A sentence if a folder, which this key names, holds the user's or the store's files; empty if not."""
    removed = folder.resolve()
    if Path.cwd().is_relative_to(removed):
        return (
            f"{key}={folder} has the current folder in it, and its files are removed when all has finished; write a "
            "folder for this alone."
        )
    for name, path in _kept(config).items():
        if path.resolve().is_relative_to(removed):
            return (
                f"{key}={folder} has {name}={path} in it, and its files are removed when all has finished; write "
                f"another {key}."
            )
    return ""


def _kept(config: DictConfig) -> dict[str, Path]:
    """Where store, artifacts and downloads are, as far as the values can be understood: others are refused later."""
    found: dict[str, Path] = {}
    try:
        if database := sqlite_file(chosen_uri(config.tracking.uri)):
            found["tracking.uri"] = database
        found["tracking.artifacts"] = absolute(config.tracking.artifacts)
        if cache := config.data.get("cache"):
            found["data.cache"] = absolute(cache)
    except (OmegaConfBaseException, ConfigError, AttributeError, TypeError):
        return {}
    return found
