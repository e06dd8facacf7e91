"""How long `compare` takes to read and judge ten thousand runs: python benchmarks/compare.py

One run is logged as a job logs it; the others are copies of its rows in a SQLite store, in a temporary folder. They are
2,000 settings (accumulation or none, 1,000 rates) of 5 seeds each, with 49 parameters, 12 tags and 16 metrics.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
import uuid
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, Metric, Param, RunTag

from msaccel.compare import report
from msaccel.compare import runs as collect
from msaccel.tracking.store import open_store

SEEDS = 5
TAGS = ("model", "data", "device", "seed", "sweep_id", "selected_on", "mlflow.source.name", "mlflow.source.type")
METRICS = ("train/loss", "train/accuracy", "lr", "grad/norm", "epoch", "throughput/samples_per_sec", "time/train_s",
           "eval/loss", "eval/accuracy", "val/loss", "val/accuracy", "memory/peak_mb", "time/compile_s",
           "final/accuracy", "final/loss", "best/accuracy")  # fmt: skip
PARAMS = {"accel": "none", "seed": "0", "optimizer.lr": "0.01", "train.epochs": "3", "train.batch_size": "32"}


def plant(client: MlflowClient, path: Path, runs: int) -> None:
    """One run through the client, then its rows again and again."""
    experiment = client.create_experiment("lenet-mnist")
    first = client.create_run(experiment, run_name="none-cpu-s0").info.run_id
    params = PARAMS | {f"model.key_{place}": "a value" for place in range(49 - len(PARAMS))}
    tags = {"simulated": "false", "git_commit": "a" * 40, **dict.fromkeys(TAGS, "a value")}
    points = [Metric(name, 0.9, 1, 100) for name in METRICS]
    client.log_batch(first, points, [Param(*one) for one in params.items()], [RunTag(*one) for one in tags.items()])
    client.log_inputs(first, [DatasetInput(Dataset("mnist", "digest", "local", "mnist"))])
    client.set_terminated(first)
    with sqlite3.connect(path) as store:
        copies = [uuid.uuid4().hex for _ in range(runs - 1)]
        tables = {"runs": "run_uuid", "params": "run_uuid", "tags": "run_uuid", "latest_metrics": "run_uuid"}
        for table, key in {**tables, "inputs": "destination_id"}.items():
            names = [row[1] for row in store.execute(f"pragma table_info({table})")]
            rows = store.execute(f"select * from {table} where {key} = ?", (first,)).fetchall()
            at = names.index(key)
            own = names.index("input_uuid") if table == "inputs" else None
            marks = ", ".join("?" * len(names))
            for row in rows:
                fields = [list(row) for _ in copies]
                for copy, field in zip(copies, fields, strict=True):
                    field[at] = copy
                    if own is not None:
                        field[own] = uuid.uuid4().hex
                store.executemany(f"insert into {table} values ({marks})", fields)
        changed = []
        for place, copy in enumerate(copies):
            setting, seed = divmod(place, SEEDS)
            changed.append((str(seed), "seed", copy))
            changed.append((("none", "accum")[setting % 2], "accel", copy))
            changed.append((f"{0.001 * (setting // 2 + 1):g}", "optimizer.lr", copy))
        store.executemany("update params set value = ? where key = ? and run_uuid = ?", changed)
        store.execute("update latest_metrics set value = 0.9 + 0.05 * (abs(random()) % 1000) / 1000")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mlflow.db"
        client = open_store(f"sqlite:///{path}")
        plant(client, path, runs)
        begun, busy = time.perf_counter(), time.process_time()
        found = collect.find(client)
        read = time.perf_counter()
        answer = report.build(found)
        judged, busy = time.perf_counter(), time.process_time() - busy
    methods = sum(len(section.found.methods) for section in answer.sections)
    pairs = sum(len(section.comparisons) for section in answer.sections)
    print(f"{len(found)} runs, {methods} methods, {pairs} pairs")
    print(f"read {read - begun:.1f} s, grouped and judged {judged - read:.1f} s, together {judged - begun:.1f} s")
    print(f"processor {busy:.1f} s")


if __name__ == "__main__":
    main()
