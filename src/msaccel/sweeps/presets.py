"""What the presets in `conf/hydra/launcher` stand on: the plugins' own keys and types, and what one job occupies.

A preset has the name that its plugin gives its own configuration, which Hydra would merge into it with a warning; so
the plugin's is moved to `schema/launcher`. That of the sweeper is left out: its defaults name a group of its own.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from omegaconf import DictConfig, OmegaConf

from msaccel.launch.processes import INTERRUPT, SECONDS_TO_END

PRESETS = ("joblib", "submitit_local", "submitit_slurm")


def register() -> None:
    """Puts the plugins' schemas where the presets find them, as far as the plugins are installed."""
    Plugins.instance()  # imports them, and so they fill the store
    store = ConfigStore.instance()
    for name in PRESETS:
        if found := store.repo["hydra"]["launcher"].pop(f"{name}.yaml", None):
            store.store(name, found.node, group="schema/launcher")
    store.repo["hydra"]["sweeper"].pop("optuna.yaml", None)
    OmegaConf.register_new_resolver("msaccel.cores", cores, replace=True)
    OmegaConf.register_new_resolver("msaccel.cards", cards, replace=True)


def cores(device: DictConfig) -> int:
    """Cores that one job of the device computes with. Its servers are all one node: that is what a launcher starts."""
    return int(device.threads) * (1 if device.simulate == "always" else _ranks(device))


def cards(device: DictConfig) -> int | None:
    """NVIDIA cards that one job of the device needs."""
    return _ranks(device) if device.target == "GPU" else None


def end_with_sweep() -> None:
    """Sees to it that this process, one of joblib's, ends with that of the sweep, should that be killed.

    By itself it would go on with its job, and then with those that were handed to it already. To be called by each job.
    """
    global _parent
    if _parent is None:
        _parent = os.getppid()
        signal.signal(INTERRUPT, _interrupt)
        threading.Thread(target=_watch, args=[_parent], daemon=True).start()
    elif os.getppid() != _parent:
        os._exit(1)


_parent: int | None = None


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), INTERRUPT)  # the job's own launcher, in the main thread, ends the job
    time.sleep(2 * SECONDS_TO_END)
    os._exit(1)


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _ranks(device: DictConfig) -> int:
    return int(device.servers) * int(device.ranks_per_server)
