"""Studies whose jobs are not trained: each gets the numbers of a function, and the runner sees no difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from msaccel.compare.runs import Record
from msaccel.launch.job import Result
from msaccel.study import protocol, protocol_file, published, runner, speed
from msaccel.study.jobs import StudyJob, logged_by
from msaccel.study.launcher_pool import Report
from msaccel.study.runner import StudyRunner
from msaccel.tracking.provenance import processor
from msaccel.tracking.status import FINISHED, IN_TURNS

PART = """
claim: Nothing at all.
parts:
  one:
    title: One
    common: [model=mlp, data=synthetic, data.val_fraction=0.2]
    arms:
      plain: [accel=none]
      clipped: [accel=clip]
    rates: [0.01, 0.02, 0.04]
    seeds: [5, 8]
    hypothesis: {method: clipped, baseline: plain, kind: equivalent, margin: 0.1}
    seconds: 7
"""
Numbers = Callable[[StudyJob], dict[str, float]]


def peak(job: StudyJob, best: float = 0.02, effect: float = 0.0) -> dict[str, float]:
    """Accuracies that are highest at a rate; with a little noise by the seed and the arm."""
    noise = 1e-4 * ((7 * job.seed + len(job.arm)) % 5)
    distance = abs(job.rate - best) / best
    accuracy = 0.95 - 0.01 * distance + noise + (effect if job.arm == "clipped" else 0.0)
    return {"final/accuracy": accuracy, "val/accuracy": accuracy, "epoch": 3.0}


class Simulated:
    """A study in a folder of its own.

    Attributes:
        batches: the jobs that were trained together, in their order.
        records: the runs in the store.
        numbers: the metrics of a job.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, text: str, numbers: Numbers) -> None:
        (folder / "simulated").mkdir()
        (folder / "simulated/study.yaml").write_text(text)
        self.batches: list[list[StudyJob]] = []
        self.records: list[Record] = []
        self.numbers = numbers
        self.tags: dict[str, str] = {"processor": processor(), "kernels": "onednn", "git_commit": "a" * 40}
        world = self

        class Launchers:
            def __init__(self, *_: object) -> None: ...

            def __enter__(self) -> Launchers:
                return self

            def __exit__(self, *_: object) -> None: ...

            def train(self, jobs: Sequence[StudyJob], beside: int, report: Report) -> None:
                world.batches.append(list(jobs))
                for job in jobs:
                    world.records.append(world.record(job, world.numbers(job)))
                    report(job, Result(str(job), FINISHED, "id"), 2.0)

        def measure(uri: str, sweep_id: str, jobs: Sequence[StudyJob]) -> None:
            world.batches.append(list(jobs))
            world.records += [world.record(job, world.numbers(job)) for job in jobs]

        patch.setattr(speed, "measure", measure)
        patch.setattr(protocol, "EXPERIMENTS", folder)
        for module in (runner, published):
            patch.setattr(module, "find_runs", lambda *_: world.records)
            patch.setattr(module, "Launchers", Launchers)
        client: Any = None
        self.runner = StudyRunner(protocol_file.load("simulated"), client, "")
        self.part = next(iter(self.runner.study.parts.values()))
        self._ids = count()

    def record(self, job: StudyJob, metrics: dict[str, float]) -> Record:
        number = next(self._ids)
        tags = self.tags | ({IN_TURNS: "20"} if job.in_turns else {})
        return Record(str(number), "0", str(job), FINISHED, number, number + 3000, logged_by(job), tags, metrics)

    def trained(self) -> set[tuple[str, float, int]]:
        return {(job.arm, job.rate, job.seed) for batch in self.batches for job in batch}
