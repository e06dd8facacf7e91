"""What MLflow has confirmed of a run, compared at its end with what is in the store.

For example, a proxy that answers 200 to everything confirms points that no store has ever seen.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag


@dataclass
class Missing:
    """What the store lacks of what was confirmed.

    Attributes:
        total: of the points that were confirmed, each once.
    """

    points: list[Metric]
    params: list[Param]
    tags: list[RunTag]
    total: int

    def __bool__(self) -> bool:
        return bool(self.points or self.params or self.tags)

    def __str__(self) -> str:
        if self.points:
            return f"{len(self.points):,} of the {self.total:,} points that it has confirmed"
        names = [*(param.key for param in self.params), *(tag.key for tag in self.tags)]
        return f"{', '.join(names[:5])}, which it has confirmed"


@dataclass
class Confirmed:
    """Points, parameters and tags that MLflow has taken from this process: 24 bytes a point."""

    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    _steps: dict[str, array[int]] = field(default_factory=dict)
    _milliseconds: dict[str, array[int]] = field(default_factory=dict)
    _values: dict[str, array[float]] = field(default_factory=dict)

    def add(self, points: Sequence[Metric]) -> None:
        for point in points:
            self._steps.setdefault(point.key, array("q")).append(point.step)
            self._milliseconds.setdefault(point.key, array("q")).append(point.timestamp)
            self._values.setdefault(point.key, array("d")).append(point.value)

    def missing(self, client: MlflowClient, run_id: str) -> Missing:
        """What is not in the store, found by names and updates; each point once."""
        points = []
        for name, steps in self._steps.items():
            there = {point.step for point in client.get_metric_history(run_id, name)}
            for step, milliseconds, value in zip(steps, self._milliseconds[name], self._values[name], strict=True):
                if step not in there:
                    points.append(Metric(name, value, milliseconds, step))
                    there.add(step)
        data = client.get_run(run_id).data
        params = [Param(key, value) for key, value in self.params.items() if key not in data.params]
        tags = [RunTag(key, value) for key, value in self.tags.items() if key not in data.tags]
        return Missing(points, params, tags, sum(len(set(steps)) for steps in self._steps.values()))
