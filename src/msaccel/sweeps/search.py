"""Sweeps whose sweeper chooses each job by the results of earlier ones (`hydra/sweeper=optuna`).

The objective is the validation accuracy, as for `compare --tune`; the test set is never used to choose. Baseline and
method each get a search of their own, with the same number of trials.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from msaccel.launch.job import Result
from msaccel.tracking.status import FINISHED

VALIDATION = "val/accuracy"
_RESULTS = "optimization_results.yaml"  # written by the sweeper into its folder


def chooses(hydra: Any) -> bool:
    """Whether the sweeper in Hydra's part of the configuration chooses its jobs by results."""
    return "basic_sweeper" not in hydra.sweeper["_target_"].lower()


def objective(result: Result) -> float:
    """The last validation accuracy of a job; 0 if it did not finish, which is the worst."""
    if result.status != FINISHED:
        return 0.0
    from msaccel.tracking.retry import call_with_retries
    from msaccel.tracking.store import connect  # MLflow's import takes a second

    run = call_with_retries(lambda: connect(result.tracking_uri).get_run(result.run_id), "a job's accuracy")
    return float(run.data.metrics[VALIDATION])


def refusals(config: DictConfig) -> list[str]:
    """A sentence for each reason not to start a search."""
    if not chooses(config.hydra):
        return []
    sweeper = config.hydra.sweeper
    reasons = [
        f"hydra.sweeper.{key}={sweeper[key]} tries nothing; write a number from 1 on."
        for key in ("n_trials", "n_jobs")
        if not isinstance(sweeper[key], int) or sweeper[key] < 1
    ]
    if sweeper.direction != "maximize":
        reasons.append("hydra.sweeper.direction chooses the best validation accuracy, the highest; leave it out.")
    overrides = OverridesParser.create().parse_overrides(list(config.hydra.overrides.task))
    swept = {override.key_or_group for override in overrides if override.is_sweep_override()}
    if "accel" in swept:
        reasons.append(
            "accel names several methods, and one search over them would not try each equally often; "
            "write a search for each, with the same hydra.sweeper.n_trials."
        )
    if "seed" in swept:
        reasons.append(
            "seed is nothing to search for; leave it out, and train the best value with seed=1,2,3,4 afterwards."
        )
    if not config.data.val_fraction:
        reasons.append(
            "hydra/sweeper=optuna chooses by validation accuracy, and there is no validation split; "
            "write data.val_fraction=0.0833333."
        )
    if config.sweep.resume:
        reasons += _unrepeatable(sweeper)
    return reasons


def _unrepeatable(sweeper: DictConfig) -> list[str]:
    """A sentence for each reason why the search would not repeat its choices, as it must to be resumed."""
    reasons = []
    if sweeper.get("sampler", {}).get("seed") is None:
        reasons.append("sweep.resume=true repeats a search's choices; write hydra.sweeper.sampler.seed= with a number.")
    if sweeper.get("study_name") is not None:
        reasons.append(
            f"hydra.sweeper.study_name={sweeper.study_name} keeps the trials itself, and would choose further ones; "
            "leave it out, or leave out sweep.resume."
        )
    return reasons


def best(sweep: Path) -> str:
    """One line with the best values that the search in this folder found; empty if there was no search."""
    path = sweep / _RESULTS
    if not path.exists():
        return ""
    found: Any = OmegaConf.load(path)
    values = " ".join(f"{key}={value}" for key, value in found.best_params.items())
    return f"best of the trials, by validation accuracy: {values} ({found.best_value:.2%})"
