"""Jobs of real ranks, in processes of their own, against the same jobs of virtual ranks: the same weights."""

import os
import socket
import subprocess
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from msaccel.distributed.handshake import VARIABLE
from tests import reference
from tests.running import Store, soak

pytestmark = pytest.mark.slow

MNIST = ("data.limit_train=2500", "data.limit_eval=500", "tracking.every=5", "train.max_updates=20")
# In the last update of an epoch the second rank has no samples.
TWO = ("device=cpu4", "device.ranks_per_server=2", *MNIST, "data.limit_train=600")
PICTURES = (
    "device=cpu4", "device.ranks_per_server=2", "model=resnet50", "model.depth=20", "model.image_size=16",
    "data=synthetic", "data.train_size=67", "data.test_size=40", "train.batch_size=4", "train.max_updates=20",
    "train.epochs=9", "optimizer.lr=0.00005",
)  # fmt: skip
STATE = (
    "moments", "moment1", "moment2", "beta", "global_step", "learning_rate", "guard", "part", "base", "dimreduce",
    "x.", "z.", "squared_rates", "correction2",
    "localsgd", "frozen", "powersgd",
)  # fmt: skip
JOBS = {
    "each method of one reduction": (
        *TWO, "accel=[accum,clip]", "accel.accum.steps=2", "accel.clip.max_norm=0.5", "precision=fp16",
        "loss_scale.mode=dynamic", "data.limit_train=570", "train.epochs=4",
    ),
    "adasum": (
        "device=cpu4", "accel=[clip,adasum]", "accel.adasum.scope=rank", "optimizer=adam", "optimizer.lr=0.001", *MNIST
    ),
    "frozen layers": (*TWO, "accel=[freeze,clip]", "accel.clip.max_norm=0.5", "accel.freeze.start=0.3"),
    "sam": ("device=cpu4", "accel=sam", *MNIST),
    "schedule-free": (*TWO, "optimizer=schedulefree", "optimizer.lr=0.001"),
    "local sgd": (
        "device=cpu4", "accel=[localsgd,accum]", "accel.localsgd.every=4", "accel.localsgd.start=0.25",
        "accel.accum.steps=2", *MNIST,
    ),
    "powersgd": (*TWO, "accel=[powersgd,clip]", "accel.powersgd.start=3", "accel.clip.max_norm=0.5"),
    "batch norm": PICTURES,  # a perturbation of 1e-7 moves its gradients by percents
    "batch norm of averaged weights": ("accel=average", "accel.average.every=2", *PICTURES),
}  # fmt: skip
OFTEN = ("each method of one reduction",)  # the others are soak tests
SERVERS = ("device=cpu2x2", "accel=[accum,adasum]", "accel.accum.steps=2", *MNIST)


def last(store: Store, run: int) -> dict[str, np.ndarray]:
    """The last checkpoint's tensors of a store's run."""
    file = store.client.download_artifacts(store.runs()[run].info.run_id, "checkpoints/last.safetensors")
    return load_file(Path(file))


def distance(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    """Over all weights and running statistics."""
    names = [name for name in expected if not name.startswith(STATE)]
    assert len(names) >= 8
    return reference.distance([found[name] for name in names], [expected[name] for name in names])


def assert_same_metrics(store: Store) -> None:
    """The first two runs have logged the same, up to rounding."""
    real, virtual = store.runs()[:2]
    assert [run.data.tags["simulated"] for run in (real, virtual)] == ["false", "true"]
    ours, theirs = store.history(real), store.history(virtual)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert [step for step, _ in ours[name]] == [step for step, _ in theirs[name]], name
        np.testing.assert_allclose([v for _, v in ours[name]], [v for _, v in theirs[name]], 1e-2, 1e-5, err_msg=name)


@pytest.mark.parametrize("name", [*OFTEN, *soak(*(name for name in JOBS if name not in OFTEN))])
def test_real_ranks_are_virtual_ranks(store: Store, name: str) -> None:
    for simulate in ("never", "always"):
        ended = store.run(*JOBS[name], f"device.simulate={simulate}")
        assert ended.returncode == 0, ended.stderr
    assert distance(last(store, 0), last(store, 1)) <= 1e-5
    assert_same_metrics(store)


def test_stage_2_on_real_ranks(store: Store) -> None:
    """Five updates from the same weights and the same P, whose 7 rows are spread over 2 ranks."""
    both = ("data=synthetic", "data.train_size=500", "data.test_size=70", "accel=dimreduce")
    first = store.run(*both, "train.epochs=3", "accel.dimreduce.components=7", "accel.dimreduce.snapshot.count=8")
    assert first.returncode == 0, first.stderr
    (run,) = store.runs()
    weights, matrix = (
        store.client.download_artifacts(run.info.run_id, name)
        for name in ("checkpoints/last.safetensors", "dimreduce/pca.safetensors")
    )
    given = (f"accel.dimreduce.weights={weights}", f"accel.dimreduce.pca.path={matrix}")
    ranks = ("device=cpu4", "device.ranks_per_server=2")
    second = (*ranks, "train.epochs=5", "accel.dimreduce.epochs=5", "accel.dimreduce.components=7", *given)
    for simulate in ("never", "always"):
        ended = store.run(*both, *second, f"device.simulate={simulate}")
        assert ended.returncode == 0, ended.stderr
    assert distance(last(store, 1), last(store, 2)) <= 1e-6
    assert distance(last(store, 1), last(store, 0)) > 1e-3, "it has trained"


def free_pair() -> int:
    """A port that is free, as is the next one."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                other.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def test_two_servers_by_one_command_or_two(store: Store) -> None:
    """Their token is written nowhere, not even where all that can be said is said."""
    both = store.run(*SERVERS)
    assert both.returncode == 0, both.stderr
    ended = store.run(*SERVERS, "device.simulate=always")
    assert ended.returncode == 0, ended.stderr
    master = f"device.master=127.0.0.1:{free_pair()}"
    token = "of-this-test-and-no-other"
    commands = [
        store.command(*SERVERS, master, f"device.server_rank={server}", "hydra.verbose=true") for server in (1, 0)
    ]
    given = {"env": {**os.environ, VARIABLE: token}, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    for server in [subprocess.Popen(command, text=True, **given) for command in commands]:
        said = server.communicate(timeout=300)[0]
        assert server.returncode == 0 and said and token not in said, said
    written = [path for path in store.folder.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert written == []
    assert len(store.runs()) == 3, "the servers have one run between them"
    assert_same_metrics(store)
    assert distance(last(store, 0), last(store, 1)) <= 1e-5
    assert distance(last(store, 2), last(store, 0)) == 0, "the same program"


@pytest.mark.soak
def test_sixteen_ranks_as_two_servers_of_eight(store: Store) -> None:
    """On two cores the starting of 16 processes takes most of the time; memory is what must hold."""
    ended = store.run("device=cpu2x2", "device.ranks_per_server=8", "accel=adasum", "train.epochs=9", *MNIST)
    assert ended.returncode == 0, ended.stderr
    (run,) = store.runs()
    assert run.data.params["device.ranks_per_server"] == "8"
    assert run.data.metrics["epoch"] > 3, "20 updates of 512 samples"
    assert 16 * run.data.metrics["memory/peak_mb"] < 24_000
