"""What is said at the end of a single job: how it did beside its baseline. A sweep ends with a report of its own."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msaccel.launch.job_folder import Result
from msaccel.tracking.credentials import without_password
from msaccel.tracking.status import FINISHED

_log = logging.getLogger(__name__)
_STORE = ("tracking.uri", "tracking.artifacts")


def log_baseline(result: Result, typed: Sequence[str]) -> None:
    """Logs the comparison of a finished job with the baseline at hand, or the command that trains one.

    Args:
        typed: the arguments of `run.py`, of which the advised commands need those that name the store.
    """
    if result.status != FINISHED or not result.run_id:  # another server's first rank has the run
        return
    words = [word.partition("=") for word in typed]
    store = [f"{key}={without_password(value)}" for key, _, value in words if key in _STORE]
    try:
        from msaccel.compare.at_hand import beside_baseline  # MLflow's import takes a second
        from msaccel.tracking.store import open_store

        said = beside_baseline(open_store(result.tracking_uri), result.run_id, store)
    except KeyboardInterrupt:  # the job has ended, and nothing is lost
        return
    except Exception as error:  # the run is safe in MLflow, and the job must not fail for its comparison
        name = type(error).__name__
        _log.warning("%s: was not compared (%s: %s); try python -m msaccel compare.", result.name, name, error)
        return
    if said:
        _log.info("%s: %s", result.name, said)
