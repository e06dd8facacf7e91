"""Starting a job in processes of its own, and ending it: its numbers do not depend on what ran before it."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace

from msaccel import compose
from msaccel.checks import refusals, run_name, without_effect
from msaccel.devices import gpu, rendezvous
from msaccel.devices.choice import choose
from msaccel.devices.meeting import GONE
from msaccel.devices.processes import Address, Process, Processes, free_port, last_lines, start_job
from msaccel.devices.rendezvous import Link
from msaccel.errors import UserError
from msaccel.jobfolder import FAILED, FINISHED, KILLED, REFUSED, JobFolder, Result
from msaccel.settings import Config, leaves

Ended = dict[str, str]  # `status` and `message`
_SECONDS_AFTER_A_FAILURE = 5.0
_SECONDS_FOR_ANOTHER_SERVER = 12.0  # longer: it says what happened there when it has waited itself


def run(config: Config, folder: JobFolder, overrides: list[str], sweep_id: str, quiet: bool) -> Result:
    """Trains one job to its end.

    Args:
        folder: for this job alone; kept only when the job did not finish.
        overrides: as the user typed them.
        sweep_id: shared by the jobs of a sweep, or empty.
        quiet: no progress bar, since other jobs write to the same terminal.

    Raises:
        KeyboardInterrupt: it was interrupted; the worker has ended and the run is KILLED.
    """
    name = run_name(config)
    reasons = [*refusals(config), *without_effect(config, overrides)]
    if not reasons:
        choice = choose(config.device)
        config, reasons = replace(config, device=choice.device), list(choice.refusals)
        print(*choice.warnings, sep="\n", end="\n" if choice.warnings else "", file=sys.stderr)
    if reasons:
        print("\n".join(reasons), file=sys.stderr)
        return folder.finish(Result(name, REFUSED, message=" ".join(reasons)))
    compose.save(config, folder.config)
    quietly = "yes" if quiet else ""
    folder.write("job.json", {"name": name, "overrides": "\n".join(overrides), "sweep_id": sweep_id, "quiet": quietly})
    try:
        environment_of_all = environment(config)
        link = rendezvous.meet(config.device, common_settings(config))
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return folder.finish(Result(name, FAILED, message=str(error)))
    try:
        result = train(config, folder, name, environment_of_all, link)
    finally:
        link.close()
    if result.status != FINISHED:
        print(f"{name}: {result.message}", file=sys.stderr)
    return result


def common_settings(config: Config) -> dict[str, str]:
    """What all servers of a job must have been started with."""
    own = ("device.server_rank", "device.master", "data.root", "data.cache", "tracking.uri", "tracking.artifacts")
    return {key: str(value) for key, value, _ in leaves(config) if key not in own}


def train(config: Config, folder: JobFolder, name: str, env: dict[str, str], link: Link) -> Result:
    """Starts this machine's ranks and stays with them to the end."""
    command = [sys.executable, "-m", "msaccel.worker", str(folder.path)]
    processes = start_job(config.device, command, env, folder.path / "ranks", scheduler_address(config))
    try:
        elsewhere = watch(folder, processes, link)
        ended = verdict(folder, config, processes, elsewhere, link)
        link.tell(**ended)
        if ended["status"] != FINISHED:
            processes.interrupt()
        return _settle(folder, name, **ended)
    except KeyboardInterrupt:
        server = config.device.server_rank
        ended = {"status": KILLED, "message": "interrupted" if server is None else f"server {server} was interrupted"}
        link.tell(**ended)
        with suppress(KeyboardInterrupt):  # a second one waits no more
            processes.interrupt()
        processes.kill()
        found = folder.result()
        if found is None or found.status != FINISHED:
            _settle(folder, name, **ended)
            raise
        return found
    finally:
        processes.kill()


def scheduler_address(config: Config) -> Address | None:
    """Where MindSpore's scheduler listens; None for a job without a cluster."""
    device = config.device
    if device.simulated or device.ranks == 1 or device.rank_table:
        return None
    if device.master is None:
        return Address("127.0.0.1", free_port())
    host, port = device.master.rsplit(":", 1)
    return Address(host, int(port) + 1)


def watch(folder: JobFolder, processes: Processes, link: Link) -> Ended | None:
    """Waits for the end of this machine's ranks, or for the end of the job on another server.

    After a failure the others are given a while: the first rank to say the same, with its run ended properly, and
    another server to say what happened there.

    Returns:
        What another server said at its end, if it did.
    """
    elsewhere: Ended | None = None
    while not processes.failed():
        if not processes.running():
            return elsewhere
        elsewhere = elsewhere or link.trouble()
        if elsewhere and elsewhere["status"] != FINISHED:
            return elsewhere
        time.sleep(0.05)
    begun = time.monotonic()
    while not _heard_enough(folder, processes, link, elsewhere, time.monotonic() - begun):
        elsewhere = elsewhere or link.trouble()
        time.sleep(0.05)
    return elsewhere


def _heard_enough(folder: JobFolder, processes: Processes, link: Link, elsewhere: Ended | None, waited: float) -> bool:
    """Whether the cause of a failure is known, or will not be."""
    running = processes.running()
    if not all(second_hand(folder, process) for process in processes.failed()):
        return waited > _SECONDS_AFTER_A_FAILURE or not any(process.rank == 0 for process in running)
    if elsewhere or waited > _SECONDS_FOR_ANOTHER_SERVER:
        return True
    if link.peers and not running:
        return False
    return not running or waited > _SECONDS_AFTER_A_FAILURE


def second_hand(folder: JobFolder, process: Process) -> bool:
    """Whether a process that failed did so because it lost another one."""
    if process.popen.returncode < 0:
        return False
    own = folder.read(f"rank-{process.rank}.json")
    return process.rank is None or (own is not None and own["message"] == GONE)


def verdict(folder: JobFolder, config: Config, processes: Processes, elsewhere: Ended | None, link: Link) -> Ended:
    """How the job ended, from what its ranks left behind and what another server said."""
    failed = processes.failed()
    causes = [process for process in failed if not second_hand(folder, process)]
    if causes:
        return {"status": FAILED, "message": failure(folder, config, min(causes, key=_returncode))}
    if elsewhere and elsewhere["status"] != FINISHED:
        return elsewhere
    if failed:
        mute = silent(failed, processes.running())
        message = f"{mute} no longer answers the other ranks." if mute else failure(folder, config, failed[-1])
        return {"status": FAILED, "message": message}
    if config.device.server_rank and link.peers:
        return elsewhere or link.end()
    if config.device.server_rank:
        return {"status": FINISHED, "message": ""}
    found = folder.result()
    message = "its process left no result, see its output above"
    return {"status": found.status, "message": found.message} if found else {"status": FAILED, "message": message}


def silent(failed: list[Process], running: list[Process]) -> str:
    """The ranks for which others have waited in vain, as far as it can be told here."""
    for scheduler in (process for process in failed if process.rank is None):
        if found := re.search(r"worker (\d+) is the first one timed out", "\n".join(last_lines(scheduler))):
            return f"rank {found[1]}"
    if all(process.rank is None for process in failed):
        return ""
    return ", ".join(process.label for process in running)


def failure(folder: JobFolder, config: Config, failed: Process) -> str:
    """One sentence about a process that failed, after the end of its output."""
    found, own = folder.result(), folder.read(f"rank-{failed.rank}.json")
    if found and own and found.message == own["message"]:
        return found.message  # all ranks say so
    if lines := last_lines(failed):
        print(*lines, sep="\n", file=sys.stderr)
    label = failed.label if config.device.ranks > 1 else "the worker"
    return f"{label}: {own['message']}" if own else f"{label} {_cause(failed.popen.returncode)}"


def _returncode(process: Process) -> int:
    return int(process.popen.returncode)


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


def _settle(folder: JobFolder, name: str, status: str, message: str) -> Result:
    """Writes how the job ended, into MLflow too where its first rank could not or knew less."""
    begun = folder.read("run.json") or {"run_id": "", "tracking_uri": ""}
    run_id, uri = begun["run_id"], begun["tracking_uri"]
    if run_id and status != FINISHED:
        from mlflow import MlflowClient  # a second's import, needed only here
        from mlflow.exceptions import MlflowException

        try:
            client = MlflowClient(uri)
            if client.get_run(run_id).info.status != status:
                client.set_terminated(run_id, status)
        except MlflowException as error:
            print(f"{name}: MLflow was not told that run {run_id} is {status} ({error}).", file=sys.stderr)
    return folder.finish(Result(name, status, run_id, uri, message))


def _cause(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (the system ends processes so when memory runs out)" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}"
    return f"ended with exit code {code} and left no result, see its output above"
