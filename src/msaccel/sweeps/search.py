"""Sweeps whose sweeper chooses the jobs by what the last ones reached (`hydra/sweeper=optuna`).

The test set never chooses: the objective is the validation accuracy, as for `compare --tune`. Baseline and method get
as many trials each by a search for each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from msaccel.launch.job_folder import Result
from msaccel.tracking.status import FINISHED

VALIDATION = "val/accuracy"
_RESULTS = "optimization_results.yaml"  # that the sweeper leaves in its folder


def chooses(hydra: Any) -> bool:
    """Whether the sweeper of this part of the configuration chooses its jobs."""
    return "basic_sweeper" not in hydra.sweeper["_target_"].lower()


def objective(result: Result) -> float:
    """The last validation accuracy of a job; 0 if it did not finish: it was tried, and lost."""
    if result.status != FINISHED:
        return 0.0
    from msaccel.tracking.store import open_store  # MLflow's import takes a second

    run = open_store(result.tracking_uri).get_run(result.run_id)
    return float(run.data.metrics[VALIDATION])


def refusals(config: DictConfig) -> list[str]:
    """A sentence for each reason not to start a search."""
    if not chooses(config.hydra):
        return []
    said = []
    overrides = OverridesParser.create().parse_overrides(list(config.hydra.overrides.task))
    swept = {override.key_or_group for override in overrides if override.is_sweep_override()}
    if "accel" in swept:
        said.append(
            "accel names several methods, and one search over them would try them unequally often; write a search for "
            "each, with the same hydra.sweeper.n_trials."
        )
    if "seed" in swept:
        said.append(
            "seed is nothing to search for; leave it out, and train the best value with seed=1,2,3,4 afterwards."
        )
    if not config.data.val_fraction:
        said.append(
            "hydra/sweeper=optuna chooses by validation accuracy, and there is no validation split; "
            "write data.val_fraction=0.0833333."
        )
    if config.sweep.resume:
        said += _unrepeatable(config.hydra.sweeper)
    return said


def _unrepeatable(sweeper: DictConfig) -> list[str]:
    """A sentence for each reason why a search would not choose again what it has chosen: so it is resumed."""
    said = []
    if sweeper.get("sampler", {}).get("seed") is None:
        said.append("sweep.resume=true repeats a search's choices; write hydra.sweeper.sampler.seed= with a number.")
    if sweeper.get("study_name") is not None:
        said.append(
            f"hydra.sweeper.study_name={sweeper.study_name} keeps the trials itself, and would choose further ones; "
            "leave it out, or sweep.resume."
        )
    return said


def best(sweep: Path) -> str:
    """What the search in this folder found, in a line; empty where there was none."""
    path = sweep / _RESULTS
    if not path.exists():
        return ""
    found: Any = OmegaConf.load(path)
    values = " ".join(f"{key}={value}" for key, value in found.best_params.items())
    return f"best of the trials, by validation accuracy: {values} ({found.best_value:.2%})"
