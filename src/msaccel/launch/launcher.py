"""Starting a job in processes of its own, and ending it: its numbers do not depend on what ran before it."""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import suppress
from dataclasses import replace

from msaccel import kernels
from msaccel.config import compose
from msaccel.config.checks import refusals, without_effect
from msaccel.devices import gpu
from msaccel.errors import UserError
from msaccel.launch import rank_env, rendezvous
from msaccel.launch.job_folder import JobFolder, Result, Task
from msaccel.launch.outcome import Outcome, crashed, second_hand, settle, verdict
from msaccel.launch.peers import Peers
from msaccel.launch.processes import Processes
from msaccel.launch.simulation import choose
from msaccel.schema import Config, leaves
from msaccel.tracking.status import FAILED, FINISHED, KILLED, REFUSED

_SECONDS_AFTER_A_FAILURE = 5.0
_SECONDS_FOR_ANOTHER_SERVER = 12.0  # longer: it says what happened there when it has waited itself


def run(config: Config, folder: JobFolder, task: Task) -> Result:
    """Trains one job to its end.

    Args:
        folder: for this job alone; kept only when the job did not finish, so that it can be resumed.
        task: what the job is told beside its configuration.

    Raises:
        KeyboardInterrupt: it was interrupted; the worker has ended and the run is KILLED.
    """
    name = task.name
    reasons = [*refusals(config), *without_effect(config, task.overrides)]
    if not reasons:
        choice = choose(config.device)
        config = replace(config, device=choice.device)
        reasons = [*choice.refusals, *kernels.refusals(config.kernels.use, config.device.on_cpu)]
        print(*choice.warnings, sep="\n", end="\n" if choice.warnings else "", file=sys.stderr)
    if reasons:
        print("\n".join(reasons), file=sys.stderr)
        return folder.finish(Result(name, REFUSED, message=" ".join(reasons)))
    compose.save(config, folder.config)
    folder.assign(task)
    folder.forget()
    try:
        environment_of_all = environment(config)
        peers = rendezvous.meet(config.device, common_settings(config))
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return folder.finish(Result(name, FAILED, message=str(error)))
    try:
        result = train(config, folder, name, environment_of_all, peers)
    finally:
        peers.close()
    if result.status != FINISHED:
        print(f"{name}: {result.message}", file=sys.stderr)
    return result


def common_settings(config: Config) -> dict[str, str]:
    """What all servers of a job must have been started with."""
    own = ("device.server_rank", "device.master", "data.root", "data.cache", "tracking.uri", "tracking.artifacts")
    return {key: str(value) for key, value, _ in leaves(config) if key not in own}


def train(config: Config, folder: JobFolder, name: str, env: dict[str, str], peers: Peers) -> Result:
    """Starts this machine's ranks and stays with them to the end."""
    command = [sys.executable, "-m", "msaccel.training.worker", str(folder.path)]
    processes = rank_env.start(config.device, command, env, folder.path / "ranks")
    try:
        elsewhere = watch(folder, processes, peers, config.sweep.job_timeout_s)
        ended = verdict(folder, config, processes, elsewhere, peers)
        again = ended["status"] == FAILED and crashed(folder, processes)
        peers.tell(**ended)
        if ended["status"] != FINISHED:
            processes.interrupt()
        return left(folder, settle(folder, name, ended["status"], ended["message"], again))
    except (KeyboardInterrupt, TimeIsOver) as end:
        server, in_time = config.device.server_rank, isinstance(end, KeyboardInterrupt)
        whose = "" if server is None else f"server {server} was "
        killed = {"status": KILLED, "message": f"{whose}interrupted"}
        ended = killed if in_time else {"status": FAILED, "message": str(end)}
        if server:
            peers.tell(**ended)
        with suppress(KeyboardInterrupt):  # a second one waits no more
            processes.interrupt()
        processes.kill()
        if not server:  # later, since the first rank's last checkpoint needs the ranks of other servers too
            peers.tell(**ended)
        found = folder.result()
        if found is None or found.status != FINISHED:
            found = left(folder, settle(folder, name, ended["status"], ended["message"]))
            if in_time:
                raise
        return found
    finally:
        processes.kill()


def left(folder: JobFolder, result: Result) -> Result:
    """Says how a job can go on that did not finish."""
    if result.status != FINISHED and folder.can_go_on():
        print(f"{result.name}: to go on from its last checkpoint: python run.py resume={result.run_id}", flush=True)
    return result


class TimeIsOver(Exception):
    """The job has taken longer than it may; the message is a sentence."""


def watch(folder: JobFolder, processes: Processes, peers: Peers, seconds: float | None) -> Outcome | None:
    """Waits for the end of this machine's ranks, or for the end of the job on another server.

    After a failure the others are given a while: the first rank to say the same, with its run ended properly, and
    another server to say what happened there.

    Args:
        seconds: that the job may take; None: as long as it wants.

    Returns:
        What another server said at its end, if it did.

    Raises:
        TimeIsOver: the seconds have passed.
    """
    until = time.monotonic() + (math.inf if seconds is None else seconds)
    elsewhere: Outcome | None = None
    while not processes.failed():
        if not processes.running():
            return elsewhere
        elsewhere = elsewhere or peers.trouble()
        if elsewhere and elsewhere["status"] != FINISHED:
            return elsewhere
        if time.monotonic() > until:
            raise TimeIsOver(f"sweep.job_timeout_s={seconds:g} was over before the job; resume it, with more seconds.")
        time.sleep(0.05)
    begun = time.monotonic()
    while not _heard_enough(folder, processes, peers, elsewhere, time.monotonic() - begun):
        elsewhere = elsewhere or peers.trouble()
        time.sleep(0.05)
    return elsewhere


def _heard_enough(
    folder: JobFolder, processes: Processes, peers: Peers, elsewhere: Outcome | None, waited: float
) -> bool:
    """Whether the cause of a failure is known, or will not be."""
    running = processes.running()
    if not all(second_hand(folder, process) for process in processes.failed()):
        return waited > _SECONDS_AFTER_A_FAILURE or not any(process.rank == 0 for process in running)
    if elsewhere or waited > _SECONDS_FOR_ANOTHER_SERVER:
        return True
    if peers.peers and not running:
        return False
    return not running or waited > _SECONDS_AFTER_A_FAILURE


def environment(config: Config) -> dict[str, str]:
    """The workers' environment: threads by the configuration alone, MindSpore's warnings off unless asked for.

    Raises:
        UserError: the folder of CUDA's libraries cannot be made.
    """
    threads = str(config.device.threads)
    base = {
        "GLOG_v": "3",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,  # NumPy's products: the PCA and the steps of dimension reduction
        "PYTHONUNBUFFERED": "1",
    }
    if config.device.target == "GPU" and not config.device.simulated:
        base |= gpu.environment(base)
    return base
