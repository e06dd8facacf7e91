"""What is confirmed and not in the store is found missing at the end of a run, and sent again or reported.

`test_server_away.py` has jobs behind a proxy that confirms in MLflow's place.
"""

import pytest

from msaccel.errors import TrackingError
from msaccel.tracking.mlflow_run import Run
from tests.tracking.storage.test_metric_queue import Store


class Lossy(Store):
    """Loses what is sent until so many batches have come."""

    def __init__(self, until: int) -> None:
        super().__init__()
        self.until = until

    def log_batch(self, *arguments: object, **content: object) -> None:
        before = {name: list(points) for name, points in self.history.items()}, dict(getattr(self, "tags", {}))
        super().log_batch(*arguments, **content)  # type: ignore[arg-type]
        if len(self.batches) <= self.until:
            self.history, self.tags = before


def test_what_was_lost_is_sent_again(capsys: pytest.CaptureFixture[str]) -> None:
    client = Lossy(until=2)
    with Run(client, "r") as run:  # type: ignore[arg-type]
        run.tag(kernels="onednn")
        for update in (1, 2, 3):
            run.metrics(update, {"train/loss": 0.5, "lr": 0.1})
            run.flush()
    assert client.status == "FINISHED" and client.tags == {"kernels": "onednn"}
    assert {name: sorted(p.step for p in found) for name, found in client.history.items()} == {
        "train/loss": [1, 2, 3], "lr": [1, 2, 3]
    }  # fmt: skip
    assert capsys.readouterr().err == "MLflow lacks 2 of the 6 points that it has confirmed; that is sent again.\n"


def test_what_stays_lost_is_an_error_and_waits_for_a_resume() -> None:
    client = Store()
    client.lost = {2}
    run = Run(client, "r")  # type: ignore[arg-type]
    for update in (1, 2, 3):
        run.metrics(update, {"train/loss": 0.5})
    with pytest.raises(TrackingError) as raised:
        run.end("FINISHED")
    assert str(raised.value) == (
        "MLflow lacks 1 of the 3 points that it has confirmed, also after a second try (does a proxy answer in its "
        "place?); once that is fixed, python run.py resume=r continues it."
    )
    assert [step for *_, step in run.unflushed()] == [2] and client.status == "RUNNING"


def test_an_end_that_is_only_confirmed_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Store()
    monkeypatch.setattr(client, "set_terminated", lambda run_id, status: None)
    run = Run(client, "r", minutes=0.001)  # type: ignore[arg-type]
    with pytest.raises(TrackingError, match=r"the end of the run could not be saved in MLflow \(it was confirmed and"):
        run.end("FINISHED")
