"""What happens before and after a sweep's jobs, as a callback of Hydra's.

Before: every job is checked, and an earlier start of the same sweep is resumed if `sweep.resume` asks for it.
After: the comparison of the runs is printed, and a line for each job that did not finish.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from msaccel.config.compose import load
from msaccel.config.overrides import in_quotes, keys_set_by
from msaccel.errors import UserError
from msaccel.launch.resume_changes import differences
from msaccel.schema import Config
from msaccel.sweeps import presets, search, session, submitit
from msaccel.sweeps.checked_jobs import checked_jobs
from msaccel.sweeps.finish import finish
from msaccel.sweeps.folder import SWEEP_DIR, SweepCommand, SweepFolder, newest

_log = logging.getLogger(__name__)


class Sweep(Callback):
    """Refuses the whole sweep if any of its jobs has an unknown key, a wrong type or a value out of range."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        # Hydra turns an exception in a callback into a warning and goes on, so the process ends here.
        session.current().composed = True
        try:
            jobs, reasons = checked_jobs(config)
            reasons += [*presets.refusals(config.hydra), *search.refusals(config), *submitit.refusals(config)]
            reasons += needs_one_server(config)
            if reasons:
                _refuse("\n".join(reasons))
            folder = begin(config, jobs)
        except UserError as error:
            _refuse(str(error))
        except OSError as error:
            _refuse(f"hydra.sweep.dir={config.hydra.sweep.dir} cannot be used ({error.strerror}); write another one.")
        except Exception:
            _log.exception("the sweep could not be checked")
            sys.exit(1)
        if folder is None:
            sys.exit(0)
        session.current().sweep = folder

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        session.current().end_if_interrupted()
        finish(SweepFolder(Path(config.hydra.sweep.dir)), session.current())


def needs_one_server(config: DictConfig) -> Iterator[str]:
    """A sentence for each reason not to run a sweep whose jobs are started on every server by itself.

    Only server 0 knows the runs of its jobs, so the others could neither go on with them nor choose by their results.
    """
    rank = config.device.get("server_rank")
    if rank is None:
        return
    if config.sweep.resume:
        yield (
            f"sweep.resume=true cannot be used with device.server_rank={rank}, since only server 0 knows which jobs "
            "have finished; write resume=RUN on all servers, for each run that was killed."
        )
    if search.chooses(config.hydra):
        yield (
            f"hydra/sweeper=optuna cannot be used with device.server_rank={rank}, since only server 0 has the results "
            "by which jobs are chosen; leave it out, and write the values, such as optimizer.lr=0.01,0.02,0.04."
        )


def _refuse(reason: str) -> NoReturn:
    _log.error("%s", reason)
    sys.exit(2)


def begin(config: DictConfig, jobs: list[Config]) -> SweepFolder | None:
    """Creates and locks the sweep's folder, or with `sweep.resume` the newest folder of the same command.

    Args:
        config: Hydra's composition; where an earlier sweep is resumed, `hydra.sweep.dir` becomes its folder.
        jobs: as they are composed now, by number; empty for a search.

    Returns:
        The folder; None if all jobs have finished already.

    Raises:
        UserError: the folder belongs to another sweep or process, or its jobs have changed.
        OSError: the folder cannot be made.
    """
    own, command = SweepFolder(Path(config.hydra.sweep.dir)), SweepCommand.of(config)
    record = own.record()
    if record and not (config.sweep.resume and record.command == command):
        raise UserError(
            f"hydra.sweep.dir={own.path} holds a sweep already; write the command of that with sweep.resume=true to go "
            "on with it, or another hydra.sweep.dir."
        )
    earlier = (own if record else newest(own.path.parent, command)) if config.sweep.resume else None
    if earlier is None:
        own.create(config, config.hydra.sweeper.n_trials if search.chooses(config.hydra) else len(jobs))
        earlier_one = ", since no sweep of this command was begun before" if config.sweep.resume else ""
        _log.info("sweep %s begins%s", own.sweep_id, earlier_one)
        return own
    earlier.reopen()
    name = earlier.sweep_id
    if not earlier.is_unfinished():
        earlier.clear_jobs()
        words = ["compare", "--sweep", name]
        if "tracking.uri" in keys_set_by(config.hydra.overrides.task):
            words += ["--tracking-uri", command.tracking_uri]
        _log.info("sweep %s has finished; python -m msaccel %s compares it", name, shlex.join(words))
        return None
    refuse_changed_jobs(earlier, jobs)
    _log.info("sweep %s goes on: %s", name, earlier.progress())
    config.hydra.sweep.dir = str(earlier.path)
    config.hydra.overrides.hydra.append(f"{SWEEP_DIR}{in_quotes(str(earlier.path))}")  # each job is composed from these
    return earlier


def refuse_changed_jobs(sweep: SweepFolder, jobs: list[Config]) -> None:
    """Compares the jobs that have started with what they would be now.

    Raises:
        UserError: defaults have changed since.
    """
    reasons: dict[str, None] = {}
    for folder in sweep.jobs():
        number = int(folder.path.name)
        if folder.is_assigned() and number < len(jobs):
            reasons.update(dict.fromkeys(differences(load(folder.config), jobs[number])[0]))
    if reasons:
        raise UserError("\n".join(reasons))
