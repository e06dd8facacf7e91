"""A store with planted runs: what a job would have logged, without training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

from msaccel.compare import report, runs
from msaccel.tracking.store import open_store

PARAMS = {
    "accel": "none",
    "model.name": "lenet",
    "model.init": "default",
    "data.name": "mnist",
    "data.limit_train": "null",
    "data.limit_eval": "null",
    "data.val_fraction": "0.0833333",
    "data.cache": "~/.cache",
    "device.name": "cpu",
    "device.target": "CPU",
    "device.servers": "1",
    "device.ranks_per_server": "1",
    "device.threads": "2",
    "optimizer.name": "momentum",
    "optimizer.lr": "0.01",
    "schedule.name": "constant",
    "train.epochs": "3",
    "train.max_updates": "null",
    "train.batch_size": "32",
    "train.eval_every": "1",
    "train.stop_at_target": "False",
    "train.target_accuracy": "null",
    "precision": "fp32",
    "tracking.every": "auto",
}
TAGS = {"git_commit": "a" * 40, "simulated": "false", "selected_on": "validation", "sweep_id": "one"}
CURVE = {"train/loss": (2.3, 0.2), "eval/accuracy": (0.3, 0.98), "time/train_s": (0.0, 30.0), "epoch": (0.0, 3.0)}
ENVIRONMENT = "# a machine, 2 processors\nmindspore==2.10.0\nnumpy==1.26.4\n"


@dataclass
class Planted:
    """Runs are planted with `run(...)`: parameters with __ for a dot, tags and metrics after `tag_` and `metric_`."""

    client: MlflowClient
    uri: str
    experiment: str
    seeds: dict[str, int] = field(default_factory=dict)

    def run(
        self, accuracy: float = 0.9, seed: int = 0, status: str = "FINISHED", curve: bool = False, **given: Any
    ) -> str:
        params, tags = PARAMS | {"seed": str(seed)}, TAGS | {"seed": str(seed)}
        metrics = {"final/accuracy": accuracy, "best/accuracy": accuracy, "val/accuracy": accuracy, "epoch": 3.0}
        digest = given.pop("digest", "d1")
        for key, value in given.items():
            if key.startswith("tag_"):
                tags[key.removeprefix("tag_")] = value
            elif key.startswith("metric_"):
                metrics[key.removeprefix("metric_").replace("__", "/")] = value
            else:
                params[key.replace("__", ".")] = value
        metrics = {name: value for name, value in metrics.items() if value is not None}
        name = f"{params['accel']}-cpu-s{seed}"
        run = self.client.create_run(self.experiment, run_name=name).info.run_id
        points = [Metric(name, value, 1, 100) for name, value in metrics.items()]
        if curve:
            points += [
                Metric(name, first + (last - first) * step / 100, 0, step)
                for name, (first, last) in CURVE.items()
                for step in range(0, 100, 10)
            ]
        self.client.log_batch(
            run, points, [Param(k, v) for k, v in params.items()], [RunTag(k, v) for k, v in tags.items()]
        )
        dataset = Dataset("mnist", digest, "local", "mnist")
        self.client.log_inputs(run, [DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])])
        if status != "RUNNING":
            self.client.set_terminated(run, status)
        return run

    def runs(self, accuracies: list[float], **given: Any) -> None:
        """One run for each accuracy, with the seeds 0, 1, …"""
        for seed, accuracy in enumerate(accuracies):
            self.run(accuracy, seed, **given)

    def find(self, **filters: Any) -> list[runs.Record]:
        return runs.find(self.client, **filters)

    def report(self, tuned: str | None = None, paired: bool = False) -> report.Report:
        return report.build(self.find(), tuned, paired)

    def section(self, tuned: str | None = None) -> report.Section:
        """The only section of the report."""
        (section,) = self.report(tuned).sections
        return section


def empty(folder: Path) -> Planted:
    """A store in this folder, with an experiment."""
    uri = f"sqlite:///{folder}/mlflow.db"
    client = open_store(uri)
    experiment = client.create_experiment("lenet-mnist", artifact_location=(folder / "artifacts/lenet-mnist").as_uri())
    return Planted(client, uri, experiment)


def plant_plausible(planted: Planted, curve: bool = False) -> Planted:
    """Plants accumulation better and slower than both of its baselines, five seeds each, one run that failed."""
    for seed in range(5):
        noise = [0.0, 0.001, -0.001, 0.0005, -0.0004][seed]

        def times(speed: float, seed: int = seed) -> dict[str, Any]:
            speed *= 1 + 0.02 * (seed - 2)
            return {
                "metric_throughput__samples_per_sec": speed,
                "metric_time__train_s": 165_000 / speed,
                "metric_memory__peak_mb": 1000.0 + seed,
                "metric_time__to_target_s": 80_000 / speed,
                "metric_samples__to_target": 80_000.0 + 100 * seed,
                "tag_updates": "300",
                "train__target_accuracy": "0.96",
                "metric_cost__forward_equivalents": 495_000.0,
            }

        planted.run(0.970 + noise, seed, curve=curve, **times(9000))
        planted.run(0.965 + noise, seed, curve=curve, train__batch_size="128", **times(12000))
        planted.run(0.985 - noise, seed, curve=curve, accel="accum", accel__accum__steps="4", **times(6000))
    planted.run(0.1, 5, status="FAILED", accel="accum", accel__accum__steps="4", train__target_accuracy="0.96")
    return planted


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return empty(tmp_path)


@pytest.fixture
def plausible(planted: Planted) -> Callable[..., Planted]:
    return partial(plant_plausible, planted)
