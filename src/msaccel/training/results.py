"""What a job leaves in MLflow at its end: files, the end of its run, and how it did beside its baseline."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from msaccel.accel import methods
from msaccel.compare.beside_baseline import beside_baseline
from msaccel.compare.description import describe
from msaccel.config.overrides import typed_store
from msaccel.errors import TrackingError, of_the_disk
from msaccel.launch import log
from msaccel.launch.job import Task
from msaccel.schema import Config
from msaccel.tracking.mlflow_run import Run
from msaccel.tracking.retry import reason
from msaccel.tracking.status import FINISHED
from msaccel.training import generate, misclassified, pyfunc
from msaccel.training.evaluation import BEST, LAST
from msaccel.training.loop import Training
from msaccel.training.nonfinite import FILE

_log = logging.getLogger(__name__)


def log_and_finish(run: Run, training: Training, folder: Path, name: str) -> None:
    """Logs all that the job has made, and ends its run.

    What MLflow does not take is kept in a checkpoint after the last update: the resumed job only has to log it.

    Raises:
        TrackingError: something was not taken.
        OSError: the picture of the curves could not be written.
    """
    failure: TrackingError | OSError | None = None
    comm = training.comm
    if comm.is_main:
        try:
            log_results(run, training, folder, name)
            run.tag(selected_on="validation" if training.data.validation else "test")
            run.end(FINISHED)
        except (TrackingError, OSError) as error:
            failure = error
    comm.barrier()  # logging may take longer than a collective waits
    if comm.all_gather(np.array([failure is not None], np.int64))[0, 0]:
        training.keep()
    comm.barrier()  # a rank that ends takes with it what it has not sent yet, and the others fail
    if failure:
        raise failure


def beside_others(run: Run, config: Config, task: Task) -> tuple[str, str]:
    """The experiment of the finished run, and how it did compared with its baseline, which also goes into the run's
    description; without commands for a job of a sweep, since the sweep's report has them.

    All that counts is in MLflow by now, so nothing here makes the job fail, and an interrupt ends only this step.
    """
    try:
        store = typed_store(config, task.overrides)
        experiment = run.client.get_run(run.run_id).info.experiment_id
        said = beside_baseline(run.client, run.run_id, store, with_commands=not task.sweep_id)
        describe(run.client, run.run_id, config.tracking.note or "", task.overrides, said)
    except KeyboardInterrupt:
        return "", ""
    except Exception as error:  # MLflow's own, SQLAlchemy's, those of an HTTP library
        _log.warning("%s: was not compared (%s); try python -m msaccel compare.", task.name, reason(error))
        return "", ""
    return experiment, said


def log_what_there_is(run: Run, training: Training, folder: Path, name: str, *, diverged: bool) -> None:
    """Logs the results of a job that failed. Its error is reported elsewhere; here one line says what was not saved."""
    try:
        if diverged:  # a comparison counts it as a run that does not train
            run.tag(diverged="true")
        log_results(run, training, folder, name)
    except (TrackingError, OSError) as error:
        _log.warning("%s: %s", name, of_the_disk(error) if isinstance(error, OSError) else error)


def log_results(run: Run, training: Training, folder: Path, name: str) -> None:
    """Logs messages, checkpoints as a model, mistakes and curves, as far as the training came."""
    for file in (FILE, log.FILE):
        if (folder / file).exists():
            run.artifact(folder / file)
    of_methods = {method: said.artifacts for method, said in methods().items()}
    kept = {"checkpoints": (LAST, BEST), "mistakes": misclassified.FILES, "samples": (generate.FILE,), **of_methods}
    for directory, files in kept.items():
        for file in files:
            if (folder / file).exists():
                run.artifact(folder / file, directory)
    if (folder / LAST).exists():
        for model_file in pyfunc.write(training.plan.config, folder / "model"):
            run.artifact(model_file, "checkpoints")
    if training.curves.points:
        training.curves.save(folder / "curves.png", name)
        run.artifact(folder / "curves.png")
