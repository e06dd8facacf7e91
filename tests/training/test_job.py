"""One job leaves in MLflow exactly what the documentation promises, and the same numbers every time."""

import math
import re
from datetime import datetime, timedelta, timezone

import mindspore as ms
import numpy as np
import pytest
import yaml
from mlflow.entities import Run

from msaccel.distributed.communicator import Communicator
from msaccel.errors import UserError
from msaccel.tracking.status import OUR_TAGS
from msaccel.training.job import kernels_must_match
from tests.running import SMALL, Store

TAGS = {
    "accel", "model", "data", "device", "simulated", "seed", "git_commit", "kernels", "selected_on", "job_folder",
    "heartbeat", "updates", "processor",
}  # fmt: skip
EVERY_LOG_POINT = {
    "train/loss", "train/accuracy", "lr", "grad/norm", "epoch", "throughput/samples_per_sec", "time/train_s",
    "time/input_s", "cost/forward_equivalents",
}  # fmt: skip
EVERY_EVALUATION = {
    "eval/loss", "eval/accuracy", "val/loss", "val/accuracy", "memory/peak_mb", "time/compile_s",
}  # fmt: skip
ONCE = {"final/accuracy", "final/loss", "best/accuracy", "time/to_target_s", "samples/to_target", "machine/contended"}
# 340 samples less 34 for validation, in windows of 4 × 32: 3 updates an epoch, the last one of 50 samples.
UPDATES, SAMPLES = 3, 306


@pytest.fixture
def run(trained: Store) -> Run:
    return trained.runs()[0]


def test_names_tags_and_status(trained: Store, run: Run) -> None:
    assert trained.client.get_experiment(run.info.experiment_id).name == "lenet-synthetic"
    assert run.info.run_name == "accum epochs=2 target_accuracy=0.05 val_fraction=0.1 train_size=340 … s0"
    assert run.info.status == "FINISHED"
    tags = {key: value for key, value in run.data.tags.items() if not key.startswith("mlflow.")}
    assert set(tags) == TAGS <= OUR_TAGS
    assert tags["kernels"].startswith("onednn-") or tags["kernels"] == "unfold"
    assert tags["job_folder"].split(":", 1)[1].startswith(str(trained.folder / "jobs"))
    assert datetime.now(timezone.utc) - datetime.fromisoformat(tags["heartbeat"]) < timedelta(hours=1)
    assert tags | dict.fromkeys(("git_commit", "kernels", "job_folder", "heartbeat", "processor"), "") == {
        "accel": "accum", "model": "lenet", "data": "synthetic", "device": "cpu", "simulated": "false", "seed": "0",
        "selected_on": "validation", "git_commit": "", "kernels": "", "job_folder": "", "heartbeat": "",
        "updates": "6", "processor": "",
    }  # fmt: skip
    assert len(tags["git_commit"].removesuffix("-dirty")) == 40 or tags["git_commit"] == "unknown"


def test_parameters_are_the_resolved_configuration(trained: Store, run: Run) -> None:
    path = trained.client.download_artifacts(run.info.run_id, "config.yaml")
    with open(path) as file:
        config = yaml.safe_load(file)

    def flat(node: object, prefix: str = "") -> dict[str, object]:
        if not isinstance(node, dict) or prefix == ".tracking.tags":
            return {prefix: node}
        return {key: value for name, inner in node.items() for key, value in flat(inner, f"{prefix}.{name}").items()}

    expected = {key[1:]: "null" if value is None else str(value) for key, value in flat(config).items()}
    assert run.data.params == {"accel": "accum", **expected}
    assert expected["accel.accum.steps"] == "4" and expected["optimizer.lr"] == "0.01"


def test_metrics_and_their_steps(trained: Store, run: Run) -> None:
    history = trained.history(run, times=True)
    assert set(history) == EVERY_LOG_POINT | EVERY_EVALUATION | ONCE
    for name in EVERY_LOG_POINT | EVERY_EVALUATION:
        assert [step for step, _ in history[name]] == [UPDATES, 2 * UPDATES], name
    assert [value for _, value in history["epoch"]] == [1.0, 2.0]
    assert all(len(history[name]) == 1 for name in ONCE)
    for points in history.values():
        assert all(math.isfinite(value) for _, value in points)
    for kind in ("train", "val", "eval"):
        assert all(0 <= value <= 1 for _, value in history[f"{kind}/accuracy"])


def test_throughput_is_samples_over_training_time(trained: Store, run: Run) -> None:
    history = trained.history(run, times=True)
    for epoch, (_, speed) in enumerate(history["throughput/samples_per_sec"], 1):
        seconds = history["time/train_s"][epoch - 1][1]
        assert speed * seconds == pytest.approx(epoch * SAMPLES, rel=1e-3)


def test_final_is_the_last_evaluation_and_best_was_chosen_on_validation(trained: Store, run: Run) -> None:
    history = trained.history(run)
    assert history["final/accuracy"][0][1] == history["eval/accuracy"][-1][1]
    assert history["final/loss"][0][1] == history["eval/loss"][-1][1]
    validation = [value for _, value in history["val/accuracy"]]
    assert history["best/accuracy"][0][1] == history["eval/accuracy"][validation.index(max(validation))][1]


def test_artifacts(trained: Store, run: Run) -> None:
    assert trained.artifacts(run) == {"config.yaml", "overrides.txt", "environment.txt", "job.log", "curves.png"}
    assert trained.artifacts(run, "mistakes") == {
        f"mistakes/{name}" for name in ("confusion.png", "worst.png", "mistakes.json")
    }
    assert trained.artifacts(run, "checkpoints") == {
        f"checkpoints/{name}" for name in ("last.safetensors", "best.safetensors", "config.yaml", "MLmodel")
    }
    with open(trained.client.download_artifacts(run.info.run_id, "environment.txt")) as file:
        assert "mindspore==2.10.0\n" in file
    with open(trained.client.download_artifacts(run.info.run_id, "overrides.txt")) as file:
        assert "accel=accum\n" in file
    with open(trained.client.download_artifacts(run.info.run_id, "curves.png"), "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"


def test_the_messages_of_a_job_stay(trained: Store, run: Run) -> None:
    with open(trained.client.download_artifacts(run.info.run_id, "job.log")) as file:
        lines = file.read().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO ", line) for line in lines)
    said = [line.split(" INFO ")[1] for line in lines]
    network = "lenet with 61,684 parameters in 8 tensors, input 1 × 32 × 32, 10 classes"
    assert f"accum s0: {network}" in said and said[-1].startswith("accum s0: final accuracy ")


def test_the_data_set_is_an_input_with_its_digest(trained: Store, run: Run) -> None:
    (dataset,) = run.inputs.dataset_inputs
    assert dataset.dataset.name == "synthetic" and len(dataset.dataset.digest) == 36
    assert {tag.key: tag.value for tag in dataset.tags} == {"mlflow.data.context": "training"}


def test_mindspore_opens_the_checkpoint(trained: Store, run: Run) -> None:
    path = trained.client.download_artifacts(run.info.run_id, "checkpoints/last.safetensors")
    parameters = ms.load_checkpoint(path, format="safetensors")
    weights = {"conv1.weight", "conv2.weight", *(f"fc{i}.{p}" for i in (1, 2, 3) for p in ("weight", "bias"))}
    assert weights | {f"moments.{name}" for name in weights} <= set(parameters)
    assert parameters["conv2.weight"].shape == (16, 6, 5, 5)
    assert all(np.isfinite(value.asnumpy()).all() for value in parameters.values())


def test_the_same_seed_gives_the_same_bits(trained: Store) -> None:
    first, second = trained.runs()
    assert trained.history(first) == trained.history(second)
    files = [
        trained.client.download_artifacts(run.info.run_id, "checkpoints/last.safetensors") for run in (first, second)
    ]
    contents = []
    for path in files:
        with open(path, "rb") as file:
            contents.append(file.read())
    assert contents[0] == contents[1]


@pytest.mark.slow
def test_a_budget_of_updates_ends_in_the_middle_of_an_epoch(store: Store) -> None:
    ended = store.run(*SMALL, "train.max_updates=5", "model=mlp", "optimizer=adamw", "schedule=cosine")
    assert ended.returncode == 0, ended.stderr
    assert "5 updates in all" in ended.stdout
    (run,) = store.runs()
    history = store.history(run)
    assert history["lr"][-1][0] == history["final/accuracy"][0][0] == 5
    assert "val/loss" not in history and run.data.tags["selected_on"] == "test"


@pytest.mark.slow
def test_a_job_stops_at_its_target(store: Store) -> None:
    ended = store.run(*SMALL, "train.epochs=50", "train.target_accuracy=0.2", "train.stop_at_target=true")
    assert ended.returncode == 0, ended.stderr
    (run,) = store.runs()
    history = store.history(run, times=True)
    (step, seconds), accuracy = history["time/to_target_s"][0], dict(history["eval/accuracy"])
    assert step == history["final/accuracy"][0][0] < 50 * 11
    assert accuracy[step] >= 0.2 and all(value < 0.2 for at, value in accuracy.items() if at < step)
    assert seconds == pytest.approx(history["time/train_s"][-1][1], abs=0.01)


def test_a_server_without_a_compiler_is_named_before_the_first_update() -> None:
    """Its gradients would round differently, and the job could not be resumed."""

    class Three(Communicator):
        def all_gather(self, values: np.ndarray) -> np.ndarray:
            return np.stack([others, others, values])

    others = np.zeros((1,), np.int64)
    kernels_must_match(Communicator(), "onednn-1")
    with pytest.raises(UserError, match=r"^rank 2 computes with other kernels than rank 0; install a C\+\+ compiler"):
        kernels_must_match(Three(), "unfold")
