"""A job ends with its comparison, and does not fail for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from msaccel.launch.job import Task
from msaccel.training import results
from tests.compare.conftest import Planted, planted

__all__ = ["planted"]  # fixtures


def ended(planted: Planted) -> Any:
    planted.run(0.90)
    return SimpleNamespace(client=planted.client, run_id=planted.run(0.95, accel="clip", accel__clip__max_norm="2.0"))


def test_a_job_is_compared_and_described(planted: Planted, composed) -> None:  # type: ignore[no-untyped-def]
    run, config = ended(planted), composed(f"tracking.uri='{planted.uri}'")
    experiment, said = results.beside_others(
        run, config, Task("clip s0", ["model=lenet", f"tracking.uri='{planted.uri}'"])
    )
    first, told, *commands = said.splitlines()
    assert experiment == planted.experiment
    assert first.startswith("+5.00 points against the baseline (without clipping): 95.00% (n = 1)")
    assert "one run decides nothing" in told
    assert f" tracking.uri={planted.uri} " in commands[0] and "model=lenet" not in commands[0]
    assert commands[-1].endswith(f" --tracking-uri {planted.uri}")
    assert "+5.00 points against" in planted.client.get_run(run.run_id).data.tags["mlflow.note.content"]


def test_a_job_does_not_fail_for_it(planted: Planted, composed, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def fails(*given: object, **names: object) -> str:
        raise ZeroDivisionError("why")

    monkeypatch.setattr(results, "beside_baseline", fails)
    assert results.beside_others(ended(planted), composed(), Task("clip s0")) == ("", "")
    assert capsys.readouterr().err == "clip s0: was not compared (why); try python -m msaccel compare.\n"


def test_an_interrupt_ends_the_comparison_alone(planted: Planted, composed, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def interrupted(*given: object, **names: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(results, "beside_baseline", interrupted)
    assert results.beside_others(ended(planted), composed(), Task("clip s0")) == ("", "")
