"""Real ranks in processes of their own against virtual ones in a single process: the same weights."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests import reference
from tests.jobs.running import Store

pytestmark = pytest.mark.slow

REAL_MNIST = ("data.limit_eval=500", "train.batch_size=32", "tracking.every=5")
SHORT = (*REAL_MNIST, "data.limit_train=2500", "train.max_updates=20")  # 19.5 global batches: the last one is short
METHODS = {
    "none": (),
    "accum": ("accel=accum", "accel.accum.steps=2", "train.max_updates=20"),
    "clip": ("accel=clip", "accel.clip.max_norm=0.5"),
    "scaled": ("precision=fp16", "loss_scale.mode=dynamic", "accel=clip"),
    "adasum": ("accel=[clip,adasum]", "accel.adasum.scope=rank", "optimizer=adam", "optimizer.lr=0.001"),
    "adasum gradient": ("accel=adasum", "accel.adasum.scope=rank", "accel.adasum.apply=gradient"),
    "servers": ("device=cpu2x2", "accel=[accum,adasum]", "accel.accum.steps=2"),
}


def last(store: Store, run: int) -> dict[str, np.ndarray]:
    """The last checkpoint's tensors of a store's run."""
    folder = store.client.download_artifacts(store.runs()[run].info.run_id, "checkpoints/last.safetensors")
    return load_file(Path(folder))


def weights(tensors: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The tensors that both have, in one order."""
    shared = sorted({*tensors} & {*other})
    assert len(shared) >= 10
    return [tensors[name] for name in shared]


@pytest.mark.parametrize("method", METHODS)
def test_real_ranks_are_virtual_ranks(store: Store, method: str) -> None:
    overrides = ("device=cpu4", *SHORT, *METHODS[method])
    for simulate in ("never", "always"):
        ended = store.run(*overrides, f"device.simulate={simulate}")
        assert ended.returncode == 0, ended.stderr
    real, virtual = store.runs()
    assert [run.data.tags["simulated"] for run in (real, virtual)] == ["false", "true"]
    found, expected = last(store, 0), last(store, 1)
    assert reference.distance(weights(found, expected), weights(expected, found)) <= 1e-5
    ours, theirs = store.history(real), store.history(virtual)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert [step for step, _ in ours[name]] == [step for step, _ in theirs[name]], name
        np.testing.assert_allclose([v for _, v in ours[name]], [v for _, v in theirs[name]], 1e-3, 1e-6, err_msg=name)
