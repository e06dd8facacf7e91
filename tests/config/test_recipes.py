"""Every recipe of `conf/experiment` composes and passes all checks; those of tutorials have the tutorials' numbers."""

from collections.abc import Callable

import pytest

from msaccel import schema
from msaccel.accel.dimreduce import steps as window
from msaccel.config.bounds import bad_values
from msaccel.config.checks import refusals
from msaccel.config.derived import global_batch
from msaccel.files import CONF
from msaccel.training.plan import Plan

RECIPES = sorted(path.stem for path in (CONF / "experiment").iterdir())
IMAGENET = 1_281_167  # training pictures
Composed = Callable[..., schema.Config]


def recipe(composed: Composed, name: str, *overrides: str) -> schema.Config:
    root = ("data.root=FOLDER",) if name.startswith("resnet50") else ()
    return composed(f"experiment={name}", *root, *overrides)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_composes_and_nothing_refuses_it(composed: Composed, name: str) -> None:
    config = recipe(composed, name)
    assert not bad_values(config) and not refusals(config)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_says_how_it_is_run(name: str) -> None:
    assert f"experiment={name}" in (CONF / "experiment" / f"{name}.yaml").read_text()


@pytest.mark.parametrize(("method", "batch"), [("dimreduce", 2_048), ("adasum", 4_096)])
def test_recipes_of_resnet50(composed: Composed, method: str, batch: int) -> None:
    config = recipe(composed, f"resnet50_{method}")
    assert list(config.accel) == [method] and global_batch(config) == batch
    assert config.model.classes == 1001 and config.model.input_shape() == (3, 224, 224)
    assert recipe(composed, f"resnet50_{method}", "accel=none").accel == {}, "its baseline is one word away"


def tutorials_rate(update: int, steps_per_epoch: int) -> float:
    """`get_lr` of both tutorials: lr_init=0, lr_end=0, lr_max=0.8, warmup_epochs=5, total_epochs=90, linear."""
    warmup, total = 5 * steps_per_epoch, 90 * steps_per_epoch
    if update < warmup:
        return 0.8 * (update + 1) / warmup
    return 0.8 * (1 - (update - warmup) / (total - warmup))


@pytest.mark.parametrize(("name", "epochs", "steps_per_epoch"), [("dimreduce", 70, 626), ("adasum", 90, 313)])
def test_rates_of_the_tutorials(composed: Composed, name: str, epochs: int, steps_per_epoch: int) -> None:
    """The last, short batch of an epoch counts here; the tutorials drop it and have 625 and 312 steps."""
    plan = Plan(recipe(composed, f"resnet50_{name}"), IMAGENET)
    budget = plan.budgets[0]
    assert budget.updates == epochs * steps_per_epoch
    for update in (0, 1, 3_000, 5 * steps_per_epoch - 1, 5 * steps_per_epoch, 20_000, budget.updates - 1):
        assert plan.rate(budget, update) == pytest.approx(tutorials_rate(update, steps_per_epoch), rel=1e-6, abs=1e-9)


def test_second_stage_of_the_tutorial(composed: Composed) -> None:
    config = recipe(composed, "resnet50_dimreduce")
    subspace = config.accel["dimreduce"]
    assert (subspace.rho, subspace.gamma, subspace.alpha, subspace.sigma) == (0.55, 0.9, 0.001, 0.4)
    assert (subspace.components, subspace.epochs, window(subspace, config)) == (32, 2, 1)
