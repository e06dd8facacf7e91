"""Launchers of Hydra's plugins: their schemas for the presets in `conf/hydra/launcher`, and the resources of one job.

A preset has the same name as its plugin's own configuration, which Hydra would merge into it with a warning, so the
plugin's is moved to `schema/launcher`. The sweeper's is removed: its defaults name a group of its own.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from types import FrameType
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from omegaconf import DictConfig, OmegaConf

from msaccel.launch.job_folder import JobFolder
from msaccel.launch.processes import INTERRUPT
from msaccel.sweeps.folder import SweepFolder
from msaccel.tracking.stopping import SECONDS_TO_END

_log = logging.getLogger(__name__)
_interrupted = threading.Event()  # in a worker of joblib's
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


def end_with_sweep() -> None:
    """Makes this process, a worker of joblib's, end when the process of the sweep is killed. Each job calls it.

    On its own, the worker would finish its job and then start the jobs that were handed to it already.
    """
    if os.getppid() != _watched_parent():
        os._exit(1)
    while _interrupted.is_set():  # the process of the sweep ends this one once the other jobs have ended
        time.sleep(1)


@cache
def _watched_parent() -> int:
    """The process of the sweep, watched from the worker's first job on."""
    parent = os.getppid()
    signal.signal(INTERRUPT, _interrupt)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the process of the sweep hands it on
    threading.Thread(target=_watch, args=[parent], daemon=True).start()
    return parent


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), INTERRUPT)  # the launcher in the main thread then ends the job
    time.sleep(2 * SECONDS_TO_END)
    os._exit(1)


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    _interrupted.set()
    raise KeyboardInterrupt


def interrupt_jobs(sweep: SweepFolder) -> None:
    """Lets the jobs that joblib runs write their last checkpoints; joblib itself would kill them at once."""
    loky: Any = sys.modules.get("joblib.externals.loky.reusable_executor")
    workers = list(loky._executor._processes or ()) if loky and loky._executor else []
    if not workers:
        return
    _log.warning("stopping the jobs, each after its current update; Ctrl-C again does not wait for them")
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker, INTERRUPT)
    until = time.monotonic() + SECONDS_TO_END
    while time.monotonic() < until and any(map(_is_ending, sweep.jobs())):
        time.sleep(0.1)


def _is_ending(job: JobFolder) -> bool:
    return bool(job.ranks_here()) or (job.is_held("launcher") and not job.is_ended())


def _ranks(device: DictConfig) -> int:
    return int(device.servers) * int(device.ranks_per_server)
