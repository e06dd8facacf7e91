"""Starting a job in processes of its own, and ending it: its numbers do not depend on what ran before it."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace

from msaccel import compose
from msaccel.checks import refusals, run_name, without_effect
from msaccel.devices import gpu, rendezvous
from msaccel.devices.choice import choose
from msaccel.devices.processes import Address, Process, Processes, free_port, last_lines, start_job
from msaccel.devices.rendezvous import Link
from msaccel.errors import UserError
from msaccel.jobfolder import FAILED, FINISHED, KILLED, REFUSED, JobFolder, Result
from msaccel.settings import Config, leaves

Ended = dict[str, str]  # `status` and `message`
_SILENT = {"status": FAILED, "message": "server 0 does not say how it ended"}
_SECONDS_AFTER_A_FAILURE = 5.0  # for the first rank to say the same, with its run ended properly
_SECONDS_FOR_SERVER_0 = 60.0  # to evaluate for the last time and to log, while the others have ended


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
        elsewhere, failed = watch(processes, link)
        if elsewhere and elsewhere["status"] != FINISHED:
            processes.interrupt()
        result = settled(folder, name, config, elsewhere, failed, link)
    except KeyboardInterrupt:
        link.tell(status=KILLED, message="interrupted")
        processes.interrupt()
        found = folder.result()
        if found is None or found.status != FINISHED:
            _settle(folder, name, KILLED, "interrupted")
            raise
        result = found
    finally:
        processes.kill()
    link.tell(status=result.status, message=result.message)
    return result


def scheduler_address(config: Config) -> Address | None:
    """Where MindSpore's scheduler listens; None for a job without a cluster."""
    device = config.device
    if device.simulated or device.ranks == 1 or device.rank_table:
        return None
    if device.master is None:
        return Address("127.0.0.1", free_port())
    host, port = device.master.rsplit(":", 1)
    return Address(host, int(port) + 1)


def watch(processes: Processes, link: Link) -> tuple[Ended | None, Process | None]:
    """Waits for the end of this machine's ranks, or for the end of the job on another server.

    Returns:
        What another server said at its end, if it did; the process here that failed first, if one did.
    """
    elsewhere: Ended | None = None
    while not (failed := processes.failed()):
        if processes.done():
            return elsewhere, None
        elsewhere = elsewhere or link.trouble()
        if elsewhere and elsewhere["status"] != FINISHED:
            return elsewhere, None
        time.sleep(0.05)
    until = time.monotonic() + _SECONDS_AFTER_A_FAILURE
    while not processes.done() and time.monotonic() < until:
        time.sleep(0.05)
    return None, failed


def settled(
    folder: JobFolder, name: str, config: Config, elsewhere: Ended | None, failed: Process | None, link: Link
) -> Result:
    """How the job ended, from what its ranks left behind."""
    if failed:
        return _after_failure(folder, name, config, failed)
    if config.device.server_rank:
        elsewhere = elsewhere or link.end(_SECONDS_FOR_SERVER_0) or _SILENT
        return folder.finish(Result(name, elsewhere["status"], message=elsewhere["message"]))
    if elsewhere and elsewhere["status"] != FINISHED:
        return _settle(folder, name, elsewhere["status"], elsewhere["message"])
    return folder.result() or _settle(folder, name, FAILED, "its process left no result, see its output above")


def _after_failure(folder: JobFolder, name: str, config: Config, failed: Process) -> Result:
    found, own, several = folder.result(), folder.read(f"rank-{failed.rank}.json"), config.device.ranks > 1
    if found and own and found.message == own["message"]:
        return found
    print(*last_lines(failed), sep="\n", file=sys.stderr)
    label = failed.label if several else "the worker"
    message = f"{label}: {own['message']}" if own else f"{label} {_cause(failed.popen.returncode)}"
    return _settle(folder, name, FAILED, message)


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
    """Ends the MLflow run of a worker that could not do it itself."""
    begun = folder.read("run.json") or {"run_id": "", "tracking_uri": ""}
    if begun["run_id"]:
        from mlflow import MlflowClient  # a second's import, needed only here

        client = MlflowClient(begun["tracking_uri"])
        if client.get_run(begun["run_id"]).info.status == "RUNNING":
            client.set_terminated(begun["run_id"], status)
    return folder.finish(Result(name, status, begun["run_id"], begun["tracking_uri"], message))


def _cause(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (the system ends processes so when memory runs out)" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}"
    return f"ended with exit code {code} and left no result, see its output above"
