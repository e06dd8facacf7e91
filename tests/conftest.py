"""Fixtures for all tests: MLflow stores, MindSpore in graph mode, real images, and the parts of one training job."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import hypothesis
import numpy as np
import pytest

from msaccel import schema
from msaccel.cli import commands
from msaccel.data import cifar_files
from msaccel.data.dataset import DatasetSplits, InMemoryDataset
from msaccel.data.download.fetch import locate
from msaccel.data.load import load_datasets
from msaccel.data.sampler import Sampler
from msaccel.data.sets import data_sets
from msaccel.errors import DataError
from msaccel.files import locked
from msaccel.launch import log
from msaccel.tracking import store as stores
from tests import forking
from tests.running import ROOT, SMALL, Store

if TYPE_CHECKING:
    from mindspore import Parameter, nn

    from msaccel.accel.accum import AccumSettings as Accum
    from msaccel.step.update import Signals, Update, Window

os.environ.setdefault("GLOG_v", "3")
os.environ.setdefault("MSACCEL_CLUSTER_TOKEN", "of the tests alone")  # for jobs on several servers
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

DECAY = 5e-4
OPTIMIZERS = {
    "momentum": schema.MomentumSettings("momentum", lr=1.0, weight_decay=DECAY, momentum=0.9, nesterov=False),
    "plain": schema.MomentumSettings("momentum", lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False),
    "sgd": schema.SgdSettings("sgd", lr=1.0, weight_decay=DECAY),
    "adam": schema.AdamSettings("adam", lr=1.0, weight_decay=DECAY, beta1=0.9, beta2=0.999, eps=1e-8),
    "adamw": schema.AdamSettings("adamw", lr=1.0, weight_decay=DECAY, beta1=0.9, beta2=0.999, eps=1e-8),
}


def pytest_configure() -> None:
    """Imports make no garbage, and looking for it takes a fifth of the time in which tests are collected; and stores in
    files are not waited for."""
    gc.disable()
    forking.do_not_wait_for_the_disk()


def pytest_collection_finish() -> None:
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the files with slow tests first: begun last, one of them would keep a single worker busy at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@dataclass
class Parts:
    """A network, its optimizer and its update."""

    network: nn.Cell
    optimizer: nn.Optimizer
    update: Update

    def step(self, window: Window, rate: float) -> Signals:
        """One update of one rank."""
        return self.update([window], rate)

    def weights(self) -> list[np.ndarray]:
        return [parameter.asnumpy().copy() for parameter in self.network.trainable_params()]

    def state(self) -> dict[str, np.ndarray]:
        """All that an update may change, but for the rate, which every update is given."""
        parameters = [*self.network.get_parameters(), *self.optimizer.get_parameters()]
        return {p.name: p.asnumpy().copy() for p in parameters if p is not self.optimizer.learning_rate}


@pytest.fixture(autouse=True)
def messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages go to standard output and error, as in a job, and to pytest's `caplog`."""
    log.set_up()
    monkeypatch.setattr(logging.getLogger("msaccel"), "propagate", True)


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """MindSpore's compilations look for garbage among all objects; those that imports have made are none."""
    gc.freeze()


@pytest.fixture(autouse=True)
def backend_restored() -> Iterator[None]:
    """A test that builds with another backend, as a job in bfloat16 does, leaves the one it found for the next test."""
    found = sys.modules.get("msaccel.kernels")
    before = found.current_backend() if found else None
    yield
    if found:
        found.use_backend(before)


@pytest.fixture(scope="session", autouse=True)
def make_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], None]:
    """MLflow's stores are copies of an empty one; what makes one anew, in some fifty steps that a slow disk delays."""
    anew = stores._make
    stores._make = forking.copies(tmp_path_factory.mktemp("stores") / "empty.db")
    return anew


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty MLflow store."""
    return Store(tmp_path)


@pytest.fixture(scope="session")
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with two finished runs: accumulation with a validation split, and the same again.

    Tests only read it, so the workers of pytest-xdist have one between them.
    """
    own = tmp_path_factory.getbasetemp()
    store = Store((own.parent if hasattr(request.config, "workerinput") else own) / "trained")
    finished = store.folder / "finished"
    with locked(Path(f"{store.folder}.lock"), seconds=600):  # in which another worker trains them
        if not finished.exists():
            shutil.rmtree(store.folder, ignore_errors=True)  # of a worker whose job has failed
            store.folder.mkdir()
            for _ in range(2):
                ended = store.run(*SMALL, "accel=accum", "data.val_fraction=0.1", "train.target_accuracy=0.05")
                assert ended.returncode == 0, ended.stderr
            finished.touch()
    return store


@pytest.fixture(scope="session")
def cifar10() -> Path:
    """The real files, from the cache every job uses."""
    try:
        return locate(data_sets()["cifar10"].SOURCE, None, os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel"))
    except DataError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tree(cifar10: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 200 + 200 of them as an image folder."""
    root = tmp_path_factory.mktemp("tree") / "jpeg"
    root.mkdir()
    cifar_files.write_image_folder(cifar10, root, limit=200)
    return root


@pytest.fixture
def saved_runs_in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """`main(["eval", …])` and `sample` fork a process that has nothing to import, instead of starting one."""

    def run(command: list[str], env: dict[str, str], stdout: int, text: bool) -> subprocess.CompletedProcess[str]:
        ended = forking.run(command[1:], ROOT, env, 500)
        sys.stderr.write(ended.stderr)
        return ended

    monkeypatch.setattr(commands, "subprocess", SimpleNamespace(run=run, PIPE=subprocess.PIPE))


@pytest.fixture(params=["onednn", "unfold"])
def choice(graph_mode: None, request: pytest.FixtureRequest) -> str:
    """Each of the CPU's kernels in turn."""
    from msaccel import kernels

    kernels.use_backend(kernels.select_backend(request.param, on_cpu=True))
    return request.param


@pytest.fixture(scope="session")
def graph_mode() -> None:
    """How every job runs; for tests that build networks."""
    import mindspore as ms

    from msaccel import kernels

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    kernels.use_backend(kernels.select_backend("auto", on_cpu=True))


@pytest.fixture(params=["GRAPH_MODE", "PYNATIVE_MODE"], ids=["graph", "pynative"])
def mode(graph_mode: None, request: pytest.FixtureRequest) -> Iterator[None]:
    """Each of MindSpore's two modes in turn."""
    import mindspore as ms

    before = ms.get_context("mode")
    ms.set_context(mode=getattr(ms, request.param))
    yield
    ms.set_context(mode=before)


@pytest.fixture(scope="session")
def build(graph_mode: None) -> Callable[..., Parts]:
    """Builds the parts from a model's name and an optimizer's, as seeded."""
    import mindspore as ms

    from msaccel import models
    from msaccel.step.loss_scaler import NO_LIMIT, Policy
    from msaccel.step.update import Update, UpdateOptions
    from msaccel.training import optimizers

    def built(
        model: str,
        optimizer: str,
        batch_size: int,
        accum: Accum | None = None,
        on_nonfinite: str = "stop",
        *,
        seed: int = 0,
    ) -> Parts:
        ms.set_seed(seed)
        network = models.build(schema.ModelSettings(name=model, init="default", classes=10))
        chosen = optimizers.build(network.trainable_params(), OPTIMIZERS[optimizer])
        policy = Policy(1 if on_nonfinite == "stop" else NO_LIMIT)
        options = UpdateOptions(policy=policy, reduction=accum.reduction if accum else "mean")
        update = Update(network, chosen, batch_size, single=accum is None, options=options)
        return Parts(network, chosen, update)

    return built


@pytest.fixture(scope="session")
def composed() -> Callable[..., schema.Config]:
    """Composes a job's configuration from overrides, as `run.py` does."""
    from hydra import compose, initialize_config_dir

    from msaccel.config.compose import register, typed
    from msaccel.files import CONF

    register()

    @cache
    def config(*overrides: str) -> schema.Config:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return typed(compose("config", overrides=list(overrides)))

    return config


@dataclass
class Job(Parts):
    """The parts of one job, put together as its configuration says."""

    config: schema.Config

    @property
    def parameters(self) -> list[Parameter]:
        """Everything a checkpoint holds, each once."""
        held = [*self.network.get_parameters(), *self.update.state_dict().values()]
        return list({id(parameter): parameter for parameter in held}.values())

    def state(self) -> dict[str, np.ndarray]:
        """All that an update may change, but for the rates, which every update is given."""
        held = [parameter for parameter in self.parameters if not parameter.name.endswith("learning_rate")]
        return {parameter.name: parameter.asnumpy().copy() for parameter in held}

    def training(self) -> dict[str, np.ndarray]:
        """Weights and optimizer state, without the loss scaler's and what a window has added up."""
        return {name: value for name, value in self.state().items() if not name.startswith(("guard.", "window."))}

    def windows(self, split: InMemoryDataset, samples: int, seed: int = 0) -> Iterator[list[Window]]:
        """The windows of all ranks, update after update and epoch after epoch, over the first samples."""
        from msaccel.accel import steps

        sampler = Sampler(samples, seed, self.config.train.batch_size, steps(self.config), self.config.device.ranks)
        for epoch in count():
            for ranks in sampler.epoch(epoch):
                yield [[split.batch(indices) for indices in micro_batches] for micro_batches in ranks]


@pytest.fixture(scope="session")
def job(graph_mode: None, composed: Callable[..., schema.Config]) -> Callable[..., Job]:
    """Builds the parts of a job of so many updates from its overrides; `network` takes the place of its model."""
    import mindspore as ms

    from msaccel.distributed.communicator import SINGLE_PROCESS
    from msaccel.models.precision import compute_in
    from msaccel.step.batch_norm import RunningStatistics
    from msaccel.training.builder import Builder, build_network

    def built(*overrides: str, network: nn.Cell | None = None, seed: int = 0, updates: int = 20) -> Job:
        gc.freeze()  # also what earlier jobs have left
        config = composed(*overrides)
        ms.set_seed(seed)
        network = build_network(config) if network is None else compute_in(network, config.precision)
        statistics = RunningStatistics(network, range(config.device.ranks), SINGLE_PROCESS)
        update = Builder(network, config, SINGLE_PROCESS, statistics, Path()).update(updates)
        return Job(network, getattr(update, "full", update).optimizer, update, config)

    return built


@pytest.fixture(scope="session")
def tiny(graph_mode: None) -> Callable[..., nn.Cell]:
    """Builds a dense network, 12-8-4 with ReLU, for images (n, 1, 3, 4), from weights drawn with a seed."""
    from mindspore import Tensor, nn

    class Tiny(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.SequentialCell(nn.Flatten(), nn.Dense(12, 8), nn.ReLU(), nn.Dense(8, 4))

        def construct(self, images: Tensor) -> Tensor:
            return self.layers(images)

    def built(seed: int = 0, size: float = 0.5) -> nn.Cell:
        network, draw = Tiny(), np.random.default_rng(seed).normal
        for parameter in network.trainable_params():
            parameter.set_data(Tensor(draw(0, size, parameter.shape).astype(np.float32)))
        return network

    return built


@pytest.fixture(scope="session")
def patches() -> InMemoryDataset:
    """256 random images for `tiny`."""
    draw = np.random.default_rng(0).integers
    images, labels = draw(0, 256, (256, 1, 3, 4), np.uint8), draw(0, 4, 256, np.int32)
    return InMemoryDataset(images, labels, np.linspace(-2, 2, 256, dtype=np.float32))


@pytest.fixture(scope="session")
def digits() -> Callable[[str], DatasetSplits]:
    """The first 1,000 training and 500 test images of MNIST, as the named model reads them."""

    @cache
    def loaded(model: str) -> DatasetSplits:
        folder = os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel")
        limits = {"limit_train": 1000, "limit_eval": 500, "val_fraction": 0.0}
        transform = {"lenet": "lenet32", "mlp": "mlp28"}[model]
        settings = schema.IdxDataSettings("mnist", transform, root=None, cache=folder, **limits)
        try:
            return load_datasets(settings, 0, (1, 32, 32))
        except DataError as error:
            pytest.skip(str(error))

    return loaded


def assert_same_bits(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, values in found.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
