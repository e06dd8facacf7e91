"""Two small studies in a store of their own whose runs are planted: four claims with different answers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from msaccel.study import protocol_file
from msaccel.study.jobs import StudyJob, logged_by, make_jobs
from msaccel.study.protocol import StudyPart
from msaccel.tracking.status import FAILED, FINISHED, IN_TURNS
from msaccel.tracking.store import open_store

STUDIES = {
    "clips": """
claim: Clipping keeps training stable.
parts:
  accuracy:
    title: At the best rate of each
    common: [model=mlp, data=synthetic, data.val_fraction=0.2]
    arms: {plain: [accel=none], clipped: [accel=clip]}
    hypothesis: {method: clipped, baseline: plain, kind: equivalent, margin: 0.5}
    rates: [0.01, 0.02, 0.04]
    seeds: [5]
    level: 0.05
    neighbours: 0
    seconds: 7
  stability:
    title: After one epoch
    common: [model=mlp, data=synthetic, train.epochs=1]
    arms: {plain: [accel=none], clipped: [accel=clip]}
    hypothesis: {method: clipped, baseline: plain, kind: better, margin: 20, endpoint: trains, rate: 0.04}
    rates: [0.02, 0.04]
    seeds: [6]
    level: 0.05
    seconds: 7
""",
    "sums": """
claim: Accumulating 4 micro-batches trains as one batch does.
parts:
  accuracy:
    title: With batch 128
    common: [model=lenet, data=mnist, train.epochs=1]
    arms: {batch 128: [accel=none, train.batch_size=128], 4 × 32: [accel=accum, accel.accum.steps=4]}
    hypothesis: {method: 4 × 32, baseline: batch 128, kind: equivalent, margin: 0.1}
    rates: [0.01]
    seeds: [5]
    level: 0.05
    seconds: 7
  speed:
    title: One job at a time
    common: [model=lenet, data=mnist, train.epochs=2]
    arms: {batch 128: [accel=none, train.batch_size=128], 4 × 32: [accel=accum, accel.accum.steps=4]}
    hypothesis: {method: 4 × 32, baseline: batch 128, kind: equivalent, margin: 3, endpoint: samples_per_sec}
    rates: [0.01]
    seeds: [5]
    level: 0.05
    speed: true
    beside: 1
    seconds: 7
""",
}
NOISE = (0.0, 0.0006, -0.0005, 0.0003, -0.0002, 0.0004)


def plant(root: Path) -> MlflowClient:
    """Writes studies, cards and a README into the root, and their runs into `mlflow.db` there."""
    (root / "docs").mkdir()
    (root / "docs/answer.md").write_text("<!-- results -->\n<!-- /results -->\n")
    (root / "README.md").write_text("<!-- summary -->\n<!-- /summary -->\n\n<!-- results -->\n<!-- /results -->\n")
    client = open_store(f"sqlite:///{root}/mlflow.db")
    for name, text in STUDIES.items():
        folder = root / "experiments" / name
        folder.mkdir(parents=True)
        (folder / "study.yaml").write_text(text)
        (folder / "README.md").write_text("<!-- results -->\n<!-- /results -->\n")
        client.create_experiment(name, artifact_location=(root / "artifacts").as_uri())
    return client


def train(client: MlflowClient, names: Iterable[str] = STUDIES) -> None:
    """Plants the runs of these studies."""
    for name in names:
        study = protocol_file.load(name)
        for part in study.parts.values():
            for job in make_jobs(study, part, [], dict.fromkeys(part.arms, part.rates), range(part.seeds[-1])):
                _run(client, name, part, job)


def _run(client: MlflowClient, name: str, part: StudyPart, job: StudyJob) -> None:
    wild = part.title == "After one epoch" and job.rate == 0.04 and job.arm == "plain"
    tags = {"processor": "a processor", "kernels": "onednn", "git_commit": "a" * 40, "seed": str(job.seed)}
    if job.in_turns:
        tags[IN_TURNS] = "20"
    if diverged := wild and job.seed == 5:
        tags["diverged"] = "true"
    run = client.create_run(client.get_experiment_by_name(name).experiment_id, run_name=job.arm).info.run_id
    metrics = {} if diverged else _metrics(part, job, wild)
    client.log_batch(
        run,
        [Metric(key, value, 1, 9) for key, value in metrics.items()],
        [Param(key, value) for key, value in logged_by(job).items()],
        [RunTag(key, value) for key, value in tags.items()],
    )
    client.set_terminated(run, FAILED if diverged else FINISHED)


def _metrics(part: StudyPart, job: StudyJob, wild: bool) -> dict[str, float]:
    noise = NOISE[(job.seed + len(job.arm)) % len(NOISE)]
    if part.title == "With batch 128":
        noise *= 10  # too much for its margin
    accuracy = 0.1 + noise if wild else 0.95 - 0.2 * abs(job.rate - 0.02) + noise
    speed = (9000 if job.arm == "batch 128" else 6300) * (1 + noise)
    return {
        **dict.fromkeys(("final/accuracy", "val/accuracy", "best/accuracy"), accuracy),
        "throughput/samples_per_sec": speed,
        "time/train_s": 60_000 / speed,
        "memory/peak_mb": 900 + 100 * noise + (12 if job.arm in ("clipped", "4 × 32") else 0),
        "cost/forward_equivalents": 180_000.0,
        "train/loss": 0.1 + noise,
    }
