"""The end of a job: FINISHED with everything in MLflow, or a checkpoint after the last update, for resume= to use."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from msaccel.config.compose import from_overrides
from msaccel.distributed.communicator import SINGLE_PROCESS, Communicator
from msaccel.errors import TrackingError
from msaccel.tracking import retry
from msaccel.tracking.curves import Curves
from msaccel.tracking.mlflow_run import Run
from msaccel.tracking.null_run import NullRun
from tests.tracking.storage.test_metric_queue import AWAY, Store


class Client(Store):
    """Takes artifacts too."""

    def log_artifact(self, run_id: str, path: str, folder: str | None) -> None:
        self.send([])
        self.artifacts = [*getattr(self, "artifacts", []), Path(path).name]


@dataclass
class Training:
    """What the end of a job asks of a training."""

    plan: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(config=from_overrides([])))
    data: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(validation=None))
    curves: Curves = field(default_factory=Curves)
    comm: Communicator = SINGLE_PROCESS
    kept: int = 0

    def keep(self) -> None:
        self.kept += 1


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    monkeypatch.setattr(retry, "SECONDS_BETWEEN_TRIES", 0.02)
    (tmp_path / "last.safetensors").write_bytes(b"x")
    training = Training()
    training.curves.add(1, {"train/loss": 1.0})
    return training


def test_with_all_taken_the_run_is_finished(training: Training, tmp_path: Path) -> None:
    from msaccel.training.results import log_and_finish

    client = Client()
    with Run(client, "r") as run:  # type: ignore[arg-type]
        run.metrics(7, {"final/accuracy": 1.0})
        log_and_finish(run, training, tmp_path, "none-cpu-s0")  # type: ignore[arg-type]
    assert client.artifacts == ["last.safetensors", "config.yaml", "MLmodel", "curves.png"]
    assert (client.taken, client.status) == ([7], "FINISHED")
    assert training.kept == 0


def test_what_is_not_taken_leaves_a_checkpoint(training: Training, tmp_path: Path) -> None:
    from msaccel.training.results import log_and_finish

    client = Client()
    client.error = AWAY
    with pytest.raises(TrackingError, match=r"last\.safetensors could not be saved in MLflow"):  # noqa: SIM117
        with Run(client, "r", minutes=0.002) as run:  # type: ignore[arg-type]
            log_and_finish(run, training, tmp_path, "none-cpu-s0")  # type: ignore[arg-type]
    assert (training.kept, client.status) == (1, "RUNNING")


def test_curves_that_cannot_be_written_leave_a_checkpoint(training: Training, tmp_path: Path) -> None:
    from msaccel.training.results import log_and_finish

    (tmp_path / "curves.png").mkdir()
    client = Client()
    with pytest.raises(IsADirectoryError), Run(client, "r") as run:  # type: ignore[arg-type]
        log_and_finish(run, training, tmp_path, "none-cpu-s0")  # type: ignore[arg-type]
    assert (training.kept, client.status) == (1, "FAILED")


class Second(Communicator):
    """The second of two ranks, which notes what it does with the first one."""

    rank, world_size = 1, 2

    def __init__(self) -> None:
        self.done: list[str] = []

    def all_gather(self, values: np.ndarray) -> np.ndarray:
        self.done.append("all_gather")
        return np.stack([values, values])

    def barrier(self) -> None:
        self.done.append("barrier")


def test_no_rank_ends_while_another_may_wait_for_what_it_has_sent(tmp_path: Path) -> None:
    from msaccel.training.results import log_and_finish

    training = Training(comm=Second())
    log_and_finish(NullRun(), training, tmp_path, "none-cpu2-s0")  # type: ignore[arg-type]
    assert training.comm.done == ["barrier", "all_gather", "barrier"]  # type: ignore[attr-defined]
