"""The page on adding a method, followed to the letter in a copy of the repository, and a toy for each other slot."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow.entities import Run

from msaccel.files import ROOT
from tests import pages
from tests.running import soak

PAGE = ROOT / "docs" / "adding-a-method.md"
SMALL = ("data=synthetic", "data.train_size=340", "data.test_size=70", "train.epochs=1", "model=mlp")
# Long enough to be interrupted: a checkpoint after each of 220 updates.
LONG = (*SMALL[:3], "train.epochs=60", "model=mlp", "checkpoint.every_updates=20", "tracking.experiment=toys")
TOY = """
from __future__ import annotations

from dataclasses import dataclass, replace

from msaccel.accel import Method
from msaccel.schema import setting


@dataclass
class ToySettings:
    factor: float = setting(above=0, at_most=1, example="0.5")


class Toy(Method):
    slot = "{slot}"
    settings = ToySettings
    baseline = "without {name}"

{body}

METHOD = Toy()
"""
# What a method in each slot overrides. The page has one in the slot `transform`; this one makes the test complete.
TOYS = {
    "small_weights": (
        "network",
        """
    def change_network(self, settings, network):
        for weight in network.trainable_params():
            weight.set_data(settings.factor * weight)
""",
        "",
    ),
    "brighter": (
        "data",
        """
    def epoch_samples(self, settings, samples, epochs):
        from msaccel.accel.brighter.graph import Brighter

        return Brighter(samples, settings.factor)
""",
        """
from dataclasses import dataclass, replace


@dataclass
class Brighter:
    samples: object
    factor: float

    def of(self, epoch):
        return replace(self.samples, table=self.samples.table + self.factor) if epoch % 2 else self.samples

    def report(self, epoch):
        return {"brighter/odd": epoch % 2}
""",
    ),
    "shrink": (
        "transform",
        """
    def transform(self, settings, weights):
        from msaccel.accel.shrink.graph import Shrink

        return Shrink(settings.factor)
""",
        """
from mindspore import Tensor, nn


class Shrink(nn.Cell):
    def __init__(self, factor):
        super().__init__(auto_prefix=False)
        self.factor = factor

    def construct(self, gradients, norm):
        smaller = ()
        for gradient in gradients:
            smaller = smaller + (gradient * self.factor,)
        return smaller, Tensor(1.0)
""",
    ),
    "half_frozen": (
        "backward",
        """
    def frozen_layers(self, settings, seed, layers):
        return lambda done, of: int(settings.factor * (layers - 1))
""",
        "",
    ),
    "total": (
        "reduce",
        """
    def build_update(self, settings, builder, updates):
        from msaccel.accel.total.graph import build

        return build(builder)
""",
        """
from dataclasses import replace

from msaccel.step.update import Update


def build(builder):
    options = replace(builder.options(range(builder.config.device.ranks)), reduction="sum")
    batch_size = builder.config.train.batch_size
    return Update(builder.network, builder.optimizer(), batch_size, single=False, options=options)
""",
    ),
    "halves": (
        "apply",
        """
    def fixed_budget(self, settings):
        return "would have begun the second half elsewhere"

    def budgets(self, settings, config, sampler, with_steps):
        from msaccel.step.stage_budget import StageBudget

        first = config.train.epochs // 2
        rates = ((first, config.optimizer.lr), (config.train.epochs - first, settings.factor * config.optimizer.lr))
        return [StageBudget(sampler, epochs * sampler.updates_per_epoch, rate) for epochs, rate in rates]

    def stages(self, settings, builder, budgets):
        from msaccel.step.stage import Stage

        update = builder.update(sum(budget.updates for budget in budgets))
        return [Stage(budget, update) for budget in budgets]
""",
        "",
    ),
    "mean_weights": (
        "evaluate",
        """
    def evaluation_weights(self, settings, weights, updates):
        from msaccel.accel.mean_weights.graph import MeanWeights

        return MeanWeights(weights, settings.factor)
""",
        """
from contextlib import contextmanager

import numpy as np
from mindspore import Tensor, ops


class MeanWeights:
    def __init__(self, weights, factor):
        self.weights, self.factor = list(weights), np.float32(factor)
        self.mean = {weight.name: weight.asnumpy().copy() for weight in self.weights}

    def after_update(self):
        for weight in self.weights:
            self.mean[weight.name] += self.factor * (weight.asnumpy() - self.mean[weight.name])

    @contextmanager
    def in_place(self):
        trained = [weight.asnumpy().copy() for weight in self.weights]
        self.put(self.mean.values())
        try:
            yield True
        finally:
            self.put(trained)

    def put(self, values):
        for weight, value in zip(self.weights, values):
            ops.assign(weight, Tensor(value))

    def state_dict(self):
        return self.mean

    def load_state_dict(self, state):
        self.mean = {name: state[name].copy() for name in self.mean}
""",
    ),
}


OFTEN = ("shrink",)  # the others are soak tests


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the page's files, and not one line else changed."""
    assert len(pages.files(PAGE.read_text())) == 4
    root = pages.copy_with(PAGE, tmp_path_factory.mktemp("copy"))
    for name, (slot, body, graph) in TOYS.items():
        package = root / "src" / "msaccel" / "accel" / name
        package.mkdir()
        (package / "__init__.py").write_text(TOY.format(slot=slot, name=name, body=body.rstrip() + "\n"))
        (package / "graph.py").write_text(graph)
        defaults = f"defaults: [/schema/accel/{name}@_here_, _self_]\n{name}:\n  factor: 0.5\n"
        (root / "conf" / "accel" / f"{name}.yaml").write_text(defaults)
    return root


@pytest.mark.slow
def test_the_new_method_trains(copy: Path) -> None:
    ended = pages.run(copy, "run.py", "accel=agc", *SMALL)
    assert ended.returncode == 0, ended.stderr
    (run,) = pages.runs(copy, "mlp-synthetic")
    assert run.info.run_name.startswith("agc ") and run.data.params["accel.agc.bound"] == "0.01"
    assert 0 < run.data.metrics["grad/clipped"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ("accel=[clip,agc]",),
            "accel=agc and accel=clip both fill the slot 'transform' of an update; keep one of them.",
        ),
        (("accel=agc", "accel.agc.bound=0"), "accel.agc.bound=0.0 is out of range (above 0)"),
        (("accel=[dimreduce,agc]", "train.epochs=6"), "accel=agc with accel=dimreduce: its stage 2 can"),
    ],
)
def test_what_cannot_be_right_is_refused(copy: Path, overrides: tuple[str, ...], sentence: str) -> None:
    ended = pages.run(copy, "run.py", *overrides, *SMALL[:3])
    assert ended.returncode == 2 and sentence in ended.stderr


@pytest.mark.slow
def test_the_test_of_the_page_passes(copy: Path) -> None:
    ended = pages.run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_agc.py")
    assert ended.returncode == 0 and "2 passed" in ended.stdout, ended.stdout


@pytest.fixture(scope="module")
def baseline(copy: Path) -> None:
    """What each toy is compared with."""
    ended = pages.run(copy, "run.py", "accel=none", *LONG)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OFTEN, *soak(*(name for name in TOYS if name not in OFTEN))])
def test_a_toy_of_each_slot_trains_resumes_and_is_compared(copy: Path, baseline: None, name: str) -> None:
    pages.interrupt(copy, f"accel={name}", *LONG)

    def run_of_the_toy() -> Run:
        (found,) = [run for run in pages.runs(copy, "toys") if run.data.params["accel"] == name]
        return found

    assert run_of_the_toy().info.status == "KILLED"
    ended = pages.run(copy, "run.py", f"resume={run_of_the_toy().info.run_id}")
    assert ended.returncode == 0, ended.stderr
    assert "goes on after update" in ended.stdout and run_of_the_toy().info.status == "FINISHED"
    report = pages.run(copy, "-m", "msaccel", "compare", "--experiment", "toys", "--output", f"{copy}/report-{name}")
    assert report.returncode == 0, report.stderr
    assert f"without {name}" in (copy / f"report-{name}" / "report.md").read_text()
