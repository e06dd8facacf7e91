"""Which keys the overrides of a command line set, and which values they may have."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import ValidationError

from msaccel.accel import methods
from msaccel.config.compose import from_overrides
from msaccel.config.groups import GROUPS
from msaccel.config.overrides import keys_set_by, problems
from msaccel.errors import ConfigError
from msaccel.schema import Config


@pytest.mark.parametrize(
    ("override", "keys"),
    [
        ("optimizer=adam", ["optimizer"]),
        ("optimizer={lr: 0.1, eps: 1e-8}", ["optimizer.lr", "optimizer.eps"]),
        ("++accel.accum={steps: 4}", ["accel.accum.steps"]),
        ("accel=[accum,clip]", ["accel"]),
        ("~train.max_updates", ["train.max_updates"]),
        ("data.root='/a (b)'", ["data.root"]),
        ("data.root=/a (b)", ["data.root"]),  # as a resumed job records it
        ("data.cache=~/x", ["data.cache"]),
    ],
)
def test_keys(override: str, keys: list[str]) -> None:
    assert list(keys_set_by([override])) == keys


@pytest.mark.parametrize("override", ["experiment=null", "experiment=null,grad_accum_lenet", "model=glob(l*)"])
def test_what_hydra_can_compose_is_no_problem(override: str) -> None:
    assert problems([override]) == []


@pytest.mark.parametrize(
    "override",
    [
        "hydra.callbacks.secrets=null",
        "++hydra.callbacks={}",
        "hydra={callbacks: null}",
        "+hydra.callbacks.x._target_=f",
    ],
)
def test_the_callbacks_that_hide_passwords_and_check_sweeps_stay(override: str) -> None:
    """Without the first one the password of tracking.uri stood in overrides.txt and job.json."""
    (problem,) = problems([override])
    assert problem.endswith("keeps passwords from being stored and checks sweeps; leave it out.")


def schemas(schema: Any) -> Iterator[Any]:
    """A schema and those of its groups of keys."""
    yield schema
    for kind in get_type_hints(schema).values():
        yield from schemas(kind) if is_dataclass(kind) else ()


def test_true_is_no_number() -> None:
    free = []
    options = [schema for group in GROUPS.values() for schema in group.values()]
    of_methods = [method.settings for method in methods().values()]
    for schema in dict.fromkeys(each for one in (Config, *options, *of_methods) for each in schemas(one)):
        for name, kind in get_type_hints(schema).items():
            if {int, float} & {kind, *get_args(kind)}:
                with pytest.raises(ValidationError):
                    OmegaConf.update(OmegaConf.structured(schema), name, True)
            elif kind is Any:
                free.append(name)
    assert sorted(free) == ["accum_steps", "every"], "the two that may be auto"


@pytest.mark.parametrize(
    "overrides", [("tracking.every=true",), ("accel=dimreduce", "accel.dimreduce.accum_steps=true")]
)
def test_true_is_no_number_where_a_word_may_stand(overrides: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="does not exist; write"):
        from_overrides(overrides)
