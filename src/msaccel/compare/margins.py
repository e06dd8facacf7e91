"""The differences that are too small to matter, for each question: what `equivalent` means.

A margin is declared before the runs are made. These are the margins of the project's own studies; `--margin`, and
`margin` of a part in `study.yaml`, replace the one for accuracy.
"""

from __future__ import annotations

from msaccel.compare.groups import ComparisonSet
from msaccel.compare.measures import ACCURACY, SPEED

_OF_ACCURACY = {("lenet", "mnist"): 0.001, ("mlp", "mnist"): 0.002, ("resnet50", "cifar10"): 0.01}  # of any depth
_OF_SPEED = 0.03


def margins(found: ComparisonSet, accuracy: float | None = None) -> dict[str, float]:
    """Margins by question: accuracy as a share of 1, speed as a share of the baseline's. Other workloads have none.

    Args:
        accuracy: the margin that is used instead.
    """
    workload = (found.conditions["model"].get("model.name", ""), found.conditions["data"].get("data.name", ""))
    declared = _OF_ACCURACY.get(workload) if accuracy is None else accuracy
    return {SPEED: _OF_SPEED} | ({} if declared is None else {ACCURACY: declared})
