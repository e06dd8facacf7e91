"""Jobs on a real NVIDIA GPU beside the same jobs on this machine's CPU; without a GPU there is nothing to run."""

import subprocess

import numpy as np
import psutil
import pytest

from msaccel.devices import nvidia
from tests.running import Store, wait_until

if not nvidia.query().cards:
    pytest.skip("needs an NVIDIA GPU", allow_module_level=True)
pytestmark = pytest.mark.slow
# 16 updates of one epoch, a point for each.
JOB = ("train.epochs=1", "tracking.every=1", "kernels.use=mindspore")
IMAGES = ("data=synthetic", "data.train_size=512", "data.test_size=128")
RESNET20 = (
    "experiment=resnet_cifar10",
    "schedule=constant",
    "schedule.warmup=0",
    "train.batch_size=32",
    "train.epochs=1",
)
JOBS = {
    "lenet": IMAGES,
    "mlp": ("model=mlp", *IMAGES),
    "resnet20": (*RESNET20, *IMAGES, "train.max_updates=4"),
    "airbench": ("model=airbench", *IMAGES, "train.max_updates=4"),
    "gpt": ("model=gpt", "data=shakespeare", "train.max_updates=8"),
    "accum and clip": ("accel=[accum,clip]", *IMAGES),
    "average": ("accel=average", "accel.average.every=1", *IMAGES),
    "sam": ("accel=sam", *IMAGES),
    "freeze": ("accel=freeze", *IMAGES),
    "centralize": ("accel=centralize", *IMAGES),
    "lessbn": ("accel=lessbn", *RESNET20, *IMAGES, "train.max_updates=4"),
    "dimreduce": (
        *("accel=dimreduce", "accel.dimreduce.epochs=1", "accel.dimreduce.components=4"),
        *("accel.dimreduce.snapshot.count=8", *IMAGES, "train.epochs=3"),
    ),
    "fp16": ("precision=fp16", "loss_scale.mode=dynamic", *IMAGES),
    "shampoo": ("optimizer=shampoo", "optimizer.interval=2", *IMAGES),
    **{
        name: (f"optimizer={name}", *IMAGES)
        for name in ("sgd", "adam", "adamw", "lars", "lamb", "lion", "muon", "schedulefree")
    },
}


def trained(store: Store, *overrides: str) -> dict[str, list[tuple[int, float]]]:
    """The curves of a job that `run.py` trains in a process of its own."""
    ended = store.run_alone(*JOB, *overrides)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-6000:]
    return store.history(store.runs()[-1])


@pytest.mark.parametrize("name", JOBS)
def test_a_gpu_trains_as_the_cpu_does(name: str, store: Store) -> None:
    """Losses agree while rounding has not grown: the same method, not the same order of sums."""
    cpu, gpu = (trained(store, *JOBS[name], f"device={device}") for device in ("cpu", "gpu"))
    assert cpu.keys() == gpu.keys()
    losses = [np.array([value for _, value in curves["train/loss"]][:8]) for curves in (cpu, gpu)]
    print(name, "largest relative difference of losses:", np.abs(losses[1] / losses[0] - 1).max())
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-2 if name == "fp16" else 2e-3)


@pytest.mark.parametrize("name", ["lenet", "gpt"])  # ResNet-20 does not: docs/devices.md
def test_the_same_command_gives_the_same_bits(name: str, store: Store) -> None:
    first, second = (trained(store, *JOBS[name], "device=gpu") for _ in range(2))
    assert first == second


def test_a_killed_job_goes_on_with_the_same_bits(store: Store, tmp_path_factory: pytest.TempPathFactory) -> None:
    job = (*JOB, *IMAGES, "device=gpu", "train.epochs=20", "checkpoint.every_updates=5")
    undisturbed = Store(tmp_path_factory.mktemp("undisturbed"))
    expected = trained(undisturbed, *job)
    launcher = subprocess.Popen(store.command(*job), cwd=store.folder)
    try:
        wait_until(lambda: launcher.poll() is not None or list(store.folder.glob("jobs/*/resume/update-0000000100*")))
        for process in psutil.Process(launcher.pid).children(recursive=True):
            process.kill()
        assert launcher.wait(timeout=60) != 0
    finally:
        launcher.kill()
    (run,) = store.runs()
    ended = store.run_alone(f"resume={run.info.run_id}")
    assert ended.returncode == 0, ended.stderr
    assert "goes on after update" in ended.stdout
    found = store.history(*store.runs())
    assert {name: sorted(points) for name, points in found.items()} == expected
