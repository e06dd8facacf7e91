"""What a job hands to MLflow at its end."""

from pathlib import Path
from types import SimpleNamespace

from msaccel.training.results import log_results


def test_the_curves_carry_the_name_of_the_run(tmp_path: Path) -> None:
    saved = []
    curves = SimpleNamespace(points={"train/loss": [(1, 0.5)]}, save=lambda path, title: saved.append(title))
    run = SimpleNamespace(artifact=lambda *where: None)
    log_results(run, SimpleNamespace(curves=curves), tmp_path, "accum-cpu-s0")
    assert saved == ["accum-cpu-s0"]
