"""Launchers of Hydra's plugins: their schemas for the presets in `conf/hydra/launcher`, and the resources of one job.

A preset has the same name as its plugin's own configuration, which Hydra would merge into it with a warning, so the
plugin's is moved to `schema/launcher`. The sweeper's is removed: its defaults name a group of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from omegaconf import DictConfig, OmegaConf

PRESETS = ("joblib", "submitit_local", "submitit_slurm")


def register() -> None:
    """Puts the schemas of the installed plugins where the presets find them."""
    Plugins.instance()  # imports the plugins, which fill the store
    store = ConfigStore.instance()
    for name in PRESETS:
        if found := store.repo["hydra"]["launcher"].pop(f"{name}.yaml", None):
            store.store(name, found.node, group="schema/launcher")
    store.repo["hydra"]["sweeper"].pop("optuna.yaml", None)
    OmegaConf.register_new_resolver("msaccel.cores", cores, replace=True)
    OmegaConf.register_new_resolver("msaccel.cards", cards, replace=True)


def refusals(hydra: DictConfig) -> Iterator[str]:
    """A sentence for each Hydra key whose value would keep a sweep from starting its jobs or finding them again."""
    folders: Any = OmegaConf.to_container(hydra.sweep, resolve=False)
    if folders["subdir"] != "${hydra.job.num}":
        yield "hydra.sweep.subdir names the folders of jobs, which are found again by their numbers; leave it out."
    batch = hydra.sweeper.get("max_batch_size")
    if batch is not None and batch < 1:
        yield f"hydra.sweeper.max_batch_size={batch} starts no job; write a number from 1 on, or leave it out."
    if hydra.launcher.get("n_jobs") == 0:
        yield "hydra.launcher.n_jobs=0 starts no job; write hydra.launcher.n_jobs=2, or -1 for one job per core."


def cores(device: DictConfig) -> int:
    """CPU cores that one job uses. All of its servers are one node, since that is what a launcher starts."""
    return int(device.threads) * (1 if device.simulate == "always" else _ranks(device))


def cards(device: DictConfig) -> int | None:
    """NVIDIA GPUs that one job needs."""
    return _ranks(device) if device.target == "GPU" else None


def _ranks(device: DictConfig) -> int:
    return int(device.servers) * int(device.ranks_per_server)
