"""Starting a job in a process of its own, and ending it: its numbers do not depend on what ran before it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from msaccel import compose
from msaccel.checks import refusals, run_name, without_effect
from msaccel.jobfolder import FAILED, FINISHED, KILLED, REFUSED, JobFolder, Result
from msaccel.settings import Config

_SECONDS_TO_END = 10


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
    if reasons := [*refusals(config), *without_effect(config, overrides)]:
        print("\n".join(reasons), file=sys.stderr)
        return folder.finish(Result(name, REFUSED, message=" ".join(reasons)))
    compose.save(config, folder.config)
    quietly = "yes" if quiet else ""
    folder.write("job.json", {"name": name, "overrides": "\n".join(overrides), "sweep_id": sweep_id, "quiet": quietly})
    worker = subprocess.Popen(
        [sys.executable, "-m", "msaccel.worker", str(folder.path)],
        stdin=subprocess.PIPE,
        env=environment(config),
        start_new_session=True,  # Ctrl-C reaches the launcher alone, which passes it on once
    )
    try:
        code = worker.wait()
    except KeyboardInterrupt:
        _end(worker)
        result = folder.result()
        if result is None or result.status != FINISHED:
            _settle(folder, name, KILLED, "interrupted")
            raise
        code = worker.returncode
    result = folder.result() or _settle(folder, name, FAILED, _cause(code))
    if result.status != FINISHED:
        print(f"{name}: {result.message}", file=sys.stderr)
    return result


def environment(config: Config) -> dict[str, str]:
    """The worker's environment: threads by the configuration alone, MindSpore's warnings off unless asked for."""
    threads = str(config.device.threads)
    return {
        "GLOG_v": "3",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,  # NumPy's products: the PCA and the steps of dimension reduction
        "PYTHONUNBUFFERED": "1",
    }


def _end(worker: subprocess.Popen[bytes]) -> None:
    """Asks the worker to end; a worker inside a compilation cannot hear it and is ended after a while."""
    worker.send_signal(signal.SIGTERM)
    try:
        worker.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


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
        return f"the worker was ended by {name}{hint}"
    return f"the worker ended with exit code {code} and left no result, see its output above"
