"""Residual networks on real pictures: the tutorials' recipes and every method, small here and at length as `soak`."""

import math
from pathlib import Path

import pytest

from msaccel.data import cifar_files
from tests.running import Store

# ResNet-8 in the place of ResNet-50: what a recipe puts together is the same, and compiles in a fraction of the time.
TINY = (
    "model.depth=8", "model.image_size=32", "data.limit_train=32", "data.limit_eval=16", "train.batch_size=4",
    "tracking.every=1",
)  # fmt: skip
TWO_RANKS = ("device=cpu4", "device.ranks_per_server=2", "device.simulate=always")
JOBS = {
    "accum+clip": ("accel=[accum,clip]", "accel.accum.steps=2", "model=resnet50", "data=imagenet", "train.epochs=1"),
    "adasum": (
        "experiment=resnet50_adasum", "device.ranks_per_server=1", "train.epochs=1", "schedule.warmup=0.5",
        "optimizer.lr=0.01",
    ),
    "dimreduce": (
        "experiment=resnet50_dimreduce", "device.ranks_per_server=2", "train.epochs=3", "schedule.warmup=0.5",
        "optimizer.lr=0.01", "accel.dimreduce.epochs=1", "accel.dimreduce.components=3",
        "accel.dimreduce.snapshot.count=4",
    ),
}  # fmt: skip


def check(store: Store, updates: int) -> list[float]:
    """The losses of the store's only run, after it trained as long as it should."""
    (run,) = store.runs()
    assert run.info.status == "FINISHED"
    assert run.data.tags["data"] == "cifar10-upscaled"
    points = store.history(run)["train/loss"]
    assert [update for update, _ in points] == list(range(1, updates + 1))
    losses = [loss for _, loss in points]
    assert all(map(math.isfinite, losses)) and "nonfinite/updates" not in run.data.metrics
    return losses


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "updates"), [("accum+clip", 4), ("adasum", 4), pytest.param("dimreduce", 9, marks=pytest.mark.soak)]
)
def test_every_method_and_recipe_on_pictures(store: Store, tree: Path, method: str, updates: int) -> None:
    """With dimreduce 8 updates of stage 1 and one of stage 2, whose window of 1,024 samples holds all there are."""
    ended = store.run(*JOBS[method], f"data.root={tree}", *TINY)
    assert ended.returncode == 0, ended.stderr
    check(store, updates)
    (run,) = store.runs()
    assert run.data.tags["accel"] == method


# At length, as ResNet-50: pictures, epochs and samples of an update, by the side of the image.
SOAK = {224: (32, 5, 8), 64: (160, 10, 8)}
METHODS = {
    "none": (),
    "accum": ("accel.accum.steps=2",),
    "clip": (),
    "adasum": ("accel.adasum.scope=rank", *TWO_RANKS),
    "dimreduce": (
        "accel.dimreduce.epochs=1", "accel.dimreduce.accum_steps=1", "accel.dimreduce.components=4",
        "accel.dimreduce.snapshot.count=8",
    ),
}  # fmt: skip


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("side", SOAK)
def test_resnet50_at_length(tmp_path: Path, cifar10: Path, side: int, method: str) -> None:
    """20 updates at 224 × 224, 200 at 64 × 64, in which the loss falls."""
    store, root = Store(tmp_path, timeout=3600), tmp_path / "jpeg"
    pictures, epochs, samples = SOAK[side]
    root.mkdir()
    cifar_files.write_image_folder(cifar10, root, limit=pictures)
    parts = 2 if method in ("accum", "adasum") else 1
    ended = store.run(
        "model=resnet50", f"model.image_size={side}", "data=imagenet", f"data.root={root}", f"accel={method}",
        *METHODS[method], f"train.batch_size={samples // parts}", f"train.epochs={epochs}",
        f"train.eval_every={epochs}", "optimizer.lr=0.002", "optimizer.weight_decay=0.0001", "tracking.every=1",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    losses = check(store, epochs * pictures // samples)
    (run,) = store.runs()
    said = ("memory/peak_mb", "time/compile_s", "time/train_s", "throughput/samples_per_sec", "final/accuracy")
    print(side, method, f"loss {losses[0]:.3f} to {losses[-1]:.3f}", {name: run.data.metrics[name] for name in said})
    if side == 64:
        assert sum(losses[-10:]) < sum(losses[:10])


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
def test_cifar10_reaches_ninety_percent(tmp_path: Path, cifar10: Path) -> None:
    """On all 10,000 test pictures, after the recipe's last update: nothing is chosen by them."""
    store = Store(tmp_path, timeout=3 * 3600)
    ended = store.run("experiment=resnet_cifar10", f"data.root={cifar10}")
    assert ended.returncode == 0, ended.stderr
    (run,) = store.runs()
    print(ended.stdout)
    assert run.data.metrics["final/accuracy"] >= 0.9
