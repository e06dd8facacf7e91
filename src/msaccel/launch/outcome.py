"""How a job ended: the first cause, found from what its processes left, and its record in the folder and in MLflow."""

from __future__ import annotations

import logging
import re
import signal

from msaccel.distributed.barrier import GONE
from msaccel.launch.job import Result
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.peers import JobOutcome, Peers
from msaccel.launch.processes import Process, Processes, last_lines, memory_kills
from msaccel.schema import Config
from msaccel.tracking.credentials import sqlite_file
from msaccel.tracking.status import FAILED, FINISHED

_log = logging.getLogger(__name__)
OUT_OF_MEMORY = "memory ran out; write a smaller train.batch_size, or run fewer jobs beside it"

_CRASHES = {
    signal.SIGSEGV: "compiled code went beyond its memory, see its output above",
    signal.SIGBUS: "compiled code went beyond its memory or its disk is full, see its output above",
    signal.SIGABRT: "it aborted in compiled code, see its output above; bad_alloc there means that memory ran out",
    signal.SIGILL: "compiled code has an instruction that this processor lacks, see its output above",
    signal.SIGFPE: "compiled code divided by zero, see its output above",
}


def lost_another(folder: JobFolder, process: Process) -> bool:
    """Whether a process failed because another one did."""
    if process.popen.returncode < 0:
        return False
    own = folder.read(f"rank-{process.rank}.json")
    return process.rank is None or (own is not None and own["message"] == GONE)


def find_outcome(
    folder: JobFolder, config: Config, processes: Processes, remote: JobOutcome | None, peers: Peers
) -> JobOutcome:
    """How the job ended, from what its ranks left and what another server reported."""
    failed, for_memory = processes.failed(), memory_kills() > processes.memory_kills
    causes = [process for process in failed if not lost_another(folder, process)]
    if causes:
        first = min(causes, key=lambda process: process.popen.returncode)
        return JobOutcome(FAILED, failure(folder, config, first, for_memory))
    if remote and remote.status != FINISHED:
        return remote
    if failed:
        if silent := _silent(failed, processes.running()):
            return JobOutcome(FAILED, f"{silent} no longer answers the other ranks.")
        return JobOutcome(FAILED, failure(folder, config, failed[-1], for_memory))
    if config.device.server_rank and peers.peers:
        return remote or peers.wait()
    found = folder.result()  # none on another server, or without room for it; the exit codes say that all is well
    return JobOutcome(found.status, found.message) if found else JobOutcome(FINISHED)


def crashed(folder: JobFolder, processes: Processes) -> bool:
    """Whether no rank blames settings or data for the failure, so that a retry may succeed."""
    said = [folder.read(f"rank-{process.rank}.json") for process in processes.failed() if process.rank is not None]
    return all(own is None or own["crashed"] for own in said)


def _silent(failed: list[Process], running: list[Process]) -> str:
    """The ranks that did not answer the others, as far as this server knows."""
    for scheduler in (process for process in failed if process.rank is None):
        if found := re.search(r"worker (\d+) is the first one timed out", "\n".join(last_lines(scheduler))):
            return f"rank {found[1]}"
    if all(process.rank is None for process in failed):
        return ""
    return ", ".join(process.label for process in running)


def failure(folder: JobFolder, config: Config, failed: Process, for_memory: bool) -> str:
    """One sentence about a process that failed; logs the end of its output.

    Args:
        for_memory: whether the system has killed processes since the job began because memory ran out.
    """
    found, own = folder.result(), folder.read(f"rank-{failed.rank}.json")
    if found and own and found.message == own["message"]:
        return found.message  # all ranks say so
    if lines := last_lines(failed):
        _log.error("%s", "\n".join(lines))
    label = failed.label if config.device.ranks > 1 else "the worker"
    return f"{label}: {own['message']}" if own else f"{label} {_cause(failed.popen.returncode, for_memory)}"


def _cause(code: int, for_memory: bool) -> str:
    if code < 0:
        number = signal.Signals(-code)
        if number in _CRASHES:
            return f"crashed ({number.name}): {_CRASHES[number]}"
        if number == signal.SIGKILL and for_memory:
            return f"was ended by SIGKILL as {OUT_OF_MEMORY}"
        hint = " (the system ends processes so when memory runs out)" if number == signal.SIGKILL else ""
        return f"was ended by {number.name}{hint}"
    return f"ended with exit code {code} and left no result, see its output above"


def record(folder: JobFolder, name: str, status: str, message: str, crashed: bool = False) -> Result:
    """Writes how the job ended into its folder, and into MLflow where its first rank could not or knew less.

    A run that is FINISHED there stays so: its results were whole when the rest of the job came to its end.
    """
    run_id, uri = folder.mlflow_run()
    if run_id and status != FINISHED:
        from msaccel.tracking.retry import StoreRemovedError, is_lost, reason  # MLflow's import takes a second
        from msaccel.tracking.store import connect

        try:
            database = sqlite_file(uri)
            if database and not database.exists():  # MLflow would make a new one
                raise StoreRemovedError(f"{database} was removed")
            client = connect(uri)
            found = client.get_run(run_id).info.status
            if found == FINISHED:
                _log.warning("%s: had finished already (%s)", name, message)
                status, message, crashed = FINISHED, "", False
            elif found != status:
                client.set_terminated(run_id, status)
        except Exception as error:
            _log.error("%s: MLflow was not told that run %s is %s (%s).", name, run_id, status, reason(error))
            run_id = "" if is_lost(error) else run_id
    result = Result(name, status, run_id, uri, message, crashed)
    try:
        return folder.finish(result)
    except OSError as error:
        _log.error("%s: how it ended is not in %s (%s).", name, folder.path, error.strerror)
        return result
