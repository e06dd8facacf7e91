"""Starts a job in processes of its own, watches them to the end, and starts a job that crashed again.

A job has processes of its own, so its numbers do not depend on what ran before it.
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import sys
from contextlib import closing, suppress
from dataclasses import replace

from msaccel import kernels
from msaccel.config import compose
from msaccel.config.checks import refusals, without_effect
from msaccel.config.derived import products, summary
from msaccel.config.overrides import typed_store
from msaccel.devices import gpu
from msaccel.distributed import handshake
from msaccel.errors import UserError
from msaccel.launch import log, rank_env, server_rendezvous
from msaccel.launch.job import Result, Task
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.outcome import crashed, find_outcome, record
from msaccel.launch.peers import JobOutcome, Peers
from msaccel.launch.processes import Processes
from msaccel.launch.simulation import resolve
from msaccel.launch.watch import JobTimeout, watch
from msaccel.schema import Config, leaves
from msaccel.tracking.status import FAILED, FINISHED, KILLED, REFUSED

_log = logging.getLogger(__name__)


def run(config: Config, folder: JobFolder, task: Task) -> Result:
    """Trains one job to its end; one that crashes resumes from its last checkpoint, at most `sweep.retries` times.

    Args:
        folder: for this job alone; kept only when the job did not finish, so that it can be resumed.
        task: what the job is told besides its configuration.

    Raises:
        KeyboardInterrupt: it was interrupted; the worker has ended and the run is KILLED.
        OSError: its folder could not be written; nothing of it remains, unless the job has begun before.
    """
    result = _run_once(config, folder, task)
    for attempt in range(1, config.sweep.retries + 1):
        if not result.crashed:
            break
        _log.warning("%s: is tried again, %d of sweep.retries=%d", task.name, attempt, config.sweep.retries)
        # A resumed run's settings may not be in its folder yet, and are no reason to refuse it.
        remaining = (config, folder, task) if task.resume else _remaining(config, folder, task)
        result = remaining if isinstance(remaining, Result) else _run_once(*remaining)
    return result


def run_in_sweep(config: Config, folder: JobFolder, task: Task, searched: bool) -> Result:
    """Trains a job of a sweep, or what an earlier start of the sweep has left to do of it.

    Args:
        folder: locked by the caller.
        searched: whether later jobs of the sweep are chosen by the result of this one.
    """
    remaining = _remaining(config, folder, task, searched)
    return remaining if isinstance(remaining, Result) else run(*remaining)


def _remaining(
    config: Config, folder: JobFolder, task: Task, searched: bool = False
) -> tuple[Config, JobFolder, Task] | Result:
    """How to go on with a job, or how it has ended."""
    if not folder.is_assigned():
        return config, folder, task
    from msaccel.launch.rejoin import rejoin  # MLflow's import takes a second

    try:
        folder.wait_for_ranks()
        folder.restore_settings()
        remaining = rejoin(config, folder, task, searched)
    except UserError as error:
        _log.error("%s: %s", task.name, error)
        return folder.finish(Result(task.name, FAILED, message=str(error)))
    return remaining if isinstance(remaining, Result) else (remaining[0], folder, remaining[1])


def _run_once(config: Config, folder: JobFolder, task: Task) -> Result:
    name = task.name
    reasons = [*refusals(config), *without_effect(config, task.overrides)]
    if not reasons:
        resolved = resolve(config.device)
        config = replace(config, device=resolved.device)
        reasons = [*resolved.refusals, *kernels.refusals(config.kernels.use, config.device.on_cpu, products(config))]
        for warning in resolved.warnings:
            _log.warning("%s", warning)
    if reasons:
        _log.error("%s", "\n".join(reasons))
        return folder.finish(Result(name, REFUSED, message=" ".join(reasons)))
    if not task.sweep_id:  # a sweep has announced its job
        _log.info("%s: trains %s, once MindSpore has started", name, summary(config))
    if task.resume:
        _log.debug("%s: resumes run %s, checkpoints: %s", name, task.resume, folder.checkpoints())
    try:
        if task.resume and not config.device.server_rank:
            folder.keep_settings()
        compose.save(config, folder.config)
        folder.assign(task)
    except OSError:
        folder.discard()  # the disk is full: the next start would take settings without a task for somebody's files
        raise
    folder.forget()
    try:
        env = environment(config)
        shared = common_settings(config) | {"resume": task.resume}
        with closing(server_rendezvous.connect(config.device, shared, env[handshake.VARIABLE])) as peers:
            result = _train(config, folder, task, env, peers)
    except UserError as error:
        result = folder.finish(Result(name, FAILED, message=str(error)))
    finally:
        folder.restore_settings()  # a run that could not be resumed can be with its old ones
    if result.status != FINISHED:
        _log.error("%s: %s", name, result.message)
    return result


def common_settings(config: Config) -> dict[str, str]:
    """The settings that all servers of a job must share."""
    own = ("device.server_rank", "device.master", "data.root", "data.cache", "tracking.uri", "tracking.artifacts")
    return {key: str(value) for key, value, _ in leaves(config) if key not in own}


def _train(config: Config, folder: JobFolder, task: Task, env: dict[str, str], peers: Peers) -> Result:
    """Starts this machine's ranks and watches them to the end."""
    name, processes = task.name, start(config, folder, task, env)
    try:
        remote = watch(folder, processes, peers, config.sweep.job_timeout_s)
        outcome = find_outcome(folder, config, processes, remote, peers)
        retry = outcome.status == FAILED and crashed(folder, processes)
        peers.broadcast(**outcome._asdict())
        if outcome.status != FINISHED:
            processes.interrupt()
        return _say_how_to_resume(config, folder, task, record(folder, name, outcome.status, outcome.message, retry))
    except (KeyboardInterrupt, JobTimeout) as end:
        server, interrupted = config.device.server_rank, isinstance(end, KeyboardInterrupt)
        whose = "" if server is None else f"server {server} was "
        outcome = JobOutcome(KILLED, f"{whose}interrupted") if interrupted else JobOutcome(FAILED, str(end))
        if interrupted and processes.running():
            _log.warning("%s: stopping after this update, with a checkpoint; Ctrl-C again stops at once", name)
        if server:
            peers.broadcast(**outcome._asdict())
        with suppress(KeyboardInterrupt):  # a second one waits no more
            processes.interrupt()
        processes.kill()
        if not server:  # later, since the first rank's last checkpoint needs the ranks of other servers too
            peers.broadcast(**outcome._asdict())
        result = folder.result()
        if result is None or result.status != FINISHED:
            result = _say_how_to_resume(config, folder, task, record(folder, name, outcome.status, outcome.message))
            if interrupted and result.status != FINISHED:
                raise
        elif interrupted:
            _log.warning("%s: had finished already", name)
        return result
    finally:
        processes.kill()


def start(config: Config, folder: JobFolder, task: Task, env: dict[str, str]) -> Processes:
    """Starts this machine's ranks; on a CPU as forks if they form a cluster or the job belongs to a sweep."""
    device = config.device
    command = [sys.executable, "-m", "msaccel.training.worker", str(folder.path)]
    several = device.ranks > 1 and not device.simulated
    forked = folder.path if device.on_cpu and (several or task.sweep_id) else None
    return rank_env.start(device, command, env, folder.path / "ranks", forked)


def _say_how_to_resume(config: Config, folder: JobFolder, task: Task, result: Result) -> Result:
    if result.status != FINISHED and result.run_id and folder.checkpoints():
        words = [*typed_store(config, task.overrides), f"resume={result.run_id}"]
        _log.info("%s: to go on from its last checkpoint: python run.py %s", result.name, shlex.join(words))
    return result


def environment(config: Config) -> dict[str, str]:
    """The workers' environment: threads as the configuration says, MindSpore's warnings off unless asked for, and the
    token by which they know each other: the user's if other servers need it too, else one for this job alone.

    Raises:
        UserError: the folder of CUDA's libraries cannot be made.
    """
    threads = str(config.device.threads)
    base = {
        "GLOG_v": "3",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        **os.environ,
        **log.for_workers(),
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,  # NumPy's products: the PCA and the steps of dimension reduction
        "PYTHONUNBUFFERED": "1",
    }
    if config.device.server_rank is None:
        base[handshake.VARIABLE] = secrets.token_hex(32)
    if config.device.target == "GPU" and not config.device.simulated:
        base |= gpu.environment(base)
    return base
