"""What is read from a run: how its job ended, where its files are, and numbers that anybody may have written."""

from __future__ import annotations

import json
from collections.abc import Mapping

FINISHED, FAILED, KILLED = "FINISHED", "FAILED", "KILLED"  # MLflow's names
REFUSED = "REFUSED"  # never started, so it has no run
_MAX_DIGITS = 18
_LARGEST = 1e30  # beyond all that is measured; a product of four such numbers, or of their inverses, is still a float
JOB_FOLDER = "job_folder"  # tag of a run: HOST:PATH
IN_TURNS = "in_turns"  # tag of a run: the turns in which its speed was measured, in one process with other jobs
CHANGED = "changed"  # tag of a resumed run; JSON: settings that are no longer those of the parameters
KIND, COMPARISON, SWEEP, SEEDS = "kind", "comparison", "sweep", "seeds"  # of runs that train nothing
OUR_TAGS = {
    "accel", "model", "data", "device", "simulated", "seed", "git_commit", "sweep_id", "kernels", "updates",
    "selected_on", "heartbeat", JOB_FOLDER, "resumes", "resumed_from", CHANGED, "processor", "diverged",
    IN_TURNS, KIND,
}  # fmt: skip


def whole_number(text: str) -> int | None:
    """The number in a tag or parameter; None if it is no number, or longer than any that msaccel writes."""
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None


def changed_settings(tags: Mapping[str, str]) -> dict[str, str]:
    """The settings that a resumed run has changed; its logged parameters keep the old values, as MLflow demands."""
    try:
        found = json.loads(tags.get(CHANGED, "{}"))
    except (ValueError, RecursionError):
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def usable(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that can be computed with: finite, and of a size that something measured can have."""
    return {key: value for key, value in metrics.items() if value == 0 or 1 / _LARGEST < abs(value) < _LARGEST}
