"""One whole job of msaccel, with its tracking into a store of its own. Usage: msaccel_job.py OVERRIDE..."""

import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from hydra import compose, initialize_config_dir

from msaccel.compose import register, save, typed
from msaccel.job import run
from msaccel.jobfolder import JobFolder
from msaccel.paths import CONF
from msaccel.tracking.run import Run


def main(overrides: list[str]) -> dict[str, float]:
    """Samples per second as the run itself logs it, and the time that MLflow took beside the training."""
    tracking = 0.0
    log_metrics = Run.metrics

    def timed(self: Run, update: int, values: Mapping[str, float]) -> None:
        nonlocal tracking
        started = time.perf_counter()
        log_metrics(self, update, values)
        tracking += time.perf_counter() - started

    Run.metrics = timed  # type: ignore[method-assign]
    register()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        store = [f"tracking.uri=sqlite:///{folder}/mlflow.db", f"tracking.artifacts={folder}/artifacts"]
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = typed(compose("config", overrides=[*overrides, *store]))
        job = JobFolder(Path(folder))
        save(config, job.config)
        ended = run(config, job, overrides, sweep_id="", quiet=True)
        started = time.perf_counter()
        ended.flush()
        tracking += time.perf_counter() - started
        metrics = ended.client.get_run(ended.run_id).data.metrics
    seconds = metrics["time/train_s"]
    return {
        "samples_per_sec": metrics["throughput/samples_per_sec"],
        "tracking_share": tracking / seconds,
        "compile_s": metrics["time/compile_s"],
        "peak_mb": metrics["memory/peak_mb"],
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
