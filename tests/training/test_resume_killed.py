"""Jobs of several processes that lose one of them, resumed: the metrics and weights of the undisturbed job."""

import time
from pathlib import Path

import pytest
from mlflow.entities import Run
from safetensors.numpy import load_file

from tests.conftest import assert_same_bits
from tests.running import Store, ranks

pytestmark = pytest.mark.slow

# Each of two ranks with its own optimizer; 11 updates an epoch, the last one of 16 samples, so that a rank has none.
JOB = (
    "model=mlp", "data=synthetic", "data.train_size=336", "data.test_size=70", "train.epochs=3", "train.eval_every=2",
    "train.batch_size=16", "device=cpu4", "device.ranks_per_server=2", "accel=adasum", "accel.adasum.scope=rank",
    "optimizer=adam", "optimizer.lr=0.001", "tracking.every=3", "checkpoint.every_updates=5",
)  # fmt: skip


def kill_when(store: Store, checkpoint: str, rank: str) -> str:
    """Starts the job, kills a rank when a checkpoint appears, and returns what the launcher said."""
    launcher = store.start(*JOB)
    try:
        end = time.monotonic() + 200
        while not list(Path(store.folder).glob(f"jobs/*/resume/{checkpoint}*")):
            assert launcher.poll() is None and time.monotonic() < end
            time.sleep(0.005)
        ranks(launcher.pid)[rank].kill()
        return launcher.communicate(timeout=400)[1]
    finally:
        launcher.kill()


def last(store: Store, run: Run) -> dict:
    return load_file(store.client.download_artifacts(run.info.run_id, "checkpoints/last.safetensors"))


def test_a_job_that_lost_a_rank_ends_as_the_undisturbed_one(store: Store, tmp_path_factory) -> None:
    undisturbed = Store(tmp_path_factory.mktemp("undisturbed"))
    assert undisturbed.run(*JOB).returncode == 0
    assert "rank 1 was ended by SIGKILL" in kill_when(store, "update-0000000010", "1")
    (run,) = store.runs()
    assert run.info.status == "FAILED"
    ended = store.run(f"resume={run.info.run_id}")
    assert ended.returncode == 0, ended.stderr
    assert "goes on after update" in ended.stdout
    (found,), (expected,) = store.runs(), undisturbed.runs()
    assert found.info.status == "FINISHED" and found.data.tags["resumes"] == "1"
    ours, theirs = store.history(found), undisturbed.history(expected)
    assert {name: sorted(points) for name, points in ours.items()} == theirs
    assert_same_bits(last(store, found), last(undisturbed, expected))
