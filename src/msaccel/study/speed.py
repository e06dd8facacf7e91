"""Measures the speed of a study's arms, which take turns in one process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from msaccel.config.compose import from_overrides
from msaccel.errors import ConfigError
from msaccel.launch.launcher import environment
from msaccel.study.jobs import StudyJob
from msaccel.tracking.credentials import complete

COMMAND = [sys.executable, "-m", "msaccel.training.speed_round"]


def measure(uri: str, sweep_id: str, jobs: Sequence[StudyJob]) -> None:
    """One round: all jobs train in turns, then each has a run with its speed in the store.

    Args:
        sweep_id: of the runs, which share it as those of a sweep do.

    Raises:
        ConfigError: the jobs cannot be measured beside each other, or their process failed.
    """
    request = json.dumps({"sweep_id": sweep_id, "jobs": [job.overrides for job in jobs]})
    env = {**environment(from_overrides(jobs[0].overrides)), "MLFLOW_TRACKING_URI": complete(uri)}
    with subprocess.Popen(
        [*COMMAND, request],
        env=env,
        stdin=subprocess.PIPE,  # the process ends when this closes
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        said = process.stderr.read().strip()
        if process.wait():
            raise ConfigError(said.splitlines()[-1] if said else f"a round of speeds ended with {process.returncode}.")
