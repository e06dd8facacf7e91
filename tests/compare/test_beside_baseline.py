"""What is said of a run beside its baseline: the difference, what would tell more, or what to train."""

from __future__ import annotations

import shlex

import pytest

from msaccel.compare.advice import same_again
from msaccel.compare.beside_baseline import beside_baseline, text
from msaccel.compare.groups import conditions, group
from msaccel.compare.runs import Record
from msaccel.config.overrides import override
from tests.compare.conftest import Planted
from tests.compare.test_advice import CHOSEN, trained

ACCUM = ("data=synthetic", "accel=accum", "accel.accum.steps=8", "optimizer.lr=0.02")
PLAIN = ("data=synthetic", "optimizer.lr=0.02")


def ended(*overrides: str, seed: int = 0, accuracy: float = 0.9) -> Record:
    run = trained(*overrides, seed=seed)
    run.metrics["final/accuracy"] = accuracy
    return run


def said(records: list[Record], store: tuple[str, ...] = ()) -> list[str]:
    """Of the last one."""
    return text(records[-1].run_id, "tries", records, store).splitlines()


def overrides(command: str) -> list[str]:
    program, script, *words = shlex.split(command)
    assert (program, script) == ("python", "run.py")
    return words


def test_one_run_a_side_decides_nothing_and_the_commands_that_would_are_given() -> None:
    difference, told, *commands, judge = said([ended(*PLAIN, accuracy=0.9781), ended(*ACCUM, accuracy=0.9812)])
    assert difference == "+0.31 points against the baseline (same micro-batch): 98.12% (n = 1) against 97.81% (n = 1)"
    assert told == "one run decides nothing; this would:"
    assert judge == "  python -m msaccel compare --experiment tries"
    seeds = ["seed=1,2,3,4"]
    assert [sorted(overrides(one)) for one in commands] == [
        sorted(["-m", "accel=none", *PLAIN, *seeds]),
        sorted(["-m", *ACCUM, *seeds]),
    ]


def test_a_run_that_does_not_train_has_no_difference() -> None:
    difference, *_ = said([ended(*PLAIN, accuracy=0.98), ended(*ACCUM, accuracy=0.1)])
    assert difference == "against the baseline (same micro-batch): trained 0 of 1 against 98.00% (n = 1)"


def test_only_missing_seeds_are_asked_for() -> None:
    runs = [ended(*PLAIN, seed=seed) for seed in range(5)] + [ended(*ACCUM, seed=seed) for seed in (0, 7)]
    _, told, command, _ = said(runs)
    assert told == "n = 2 misses most; more seeds tell:"
    assert overrides(command)[-1] == "seed=1,2,3"


def test_five_a_side_are_judged_by_compare() -> None:
    runs = [ended(*chosen, seed=seed) for chosen in (PLAIN, ACCUM) for seed in range(5)]
    assert said(runs)[1:] == ["with intervals and a verdict:", "  python -m msaccel compare --experiment tries"]


def test_a_baseline_is_told_of_the_methods_at_hand() -> None:
    first, *_ = said([ended(*ACCUM, accuracy=0.8), ended(*PLAIN, accuracy=0.9)])
    assert first.startswith("accum") and ": -10.00 points against this baseline (same micro-batch): 80.00% " in first
    (alone,) = said([ended(*PLAIN)])
    assert alone.startswith("a baseline; ")


@pytest.mark.parametrize(
    "other",
    [ended(*PLAIN[:1], "optimizer.lr=0.01"), ended(*PLAIN, "train.epochs=1"), ended(*ACCUM[:2], "optimizer.lr=0.02")],
)
def test_runs_that_differ_by_more_are_no_baseline(other: Record) -> None:
    first, command = said([other, ended(*ACCUM, seed=3)])
    assert first == "no baseline at hand: tries has no run without the method that is otherwise equal; train it:"
    assert sorted(overrides(command)) == sorted(["accel=none", *PLAIN, "seed=3"])


def test_commands_name_a_store_of_the_user_s_own() -> None:
    store = ("tracking.uri=sqlite:////a b/mlflow.db",)
    _, _, *commands, judge = said([ended(*PLAIN), ended(*ACCUM)], store)
    assert all(store[0] in overrides(command) for command in commands)
    assert shlex.split(judge)[-2:] == ["--tracking-uri", "sqlite:////a b/mlflow.db"]


def test_an_address_in_hydra_s_quotes_is_given_as_it_is() -> None:
    uri = "sqlite:////data/runs (1)/mlflow.db"
    judge = said([ended(*PLAIN), ended(*ACCUM)], (override("tracking.uri", uri),))[-1]
    assert shlex.split(judge)[-2:] == ["--tracking-uri", uri]


def test_nothing_is_said_of_runs_without_a_score() -> None:
    run = ended(*ACCUM)
    del run.metrics["final/accuracy"]
    assert text(run.run_id, "tries", [run]) == "" == text("another", "tries", [run])


@pytest.mark.parametrize("chosen", CHOSEN[::4], ids=" ".join)
def test_the_same_again_is_the_same(chosen: tuple[str, ...]) -> None:
    run = trained(*chosen)
    ((method,),) = [found.methods for found in group([run])]
    again = trained(*(word for word in overrides(same_again(method, [1, 2])) if word not in ("-m", "seed=1,2")))
    ((both,),) = [found.methods for found in group([run, again])]
    assert conditions(again) == conditions(run) and both.repeats == 1


def test_the_runs_are_those_of_the_experiment(planted: Planted) -> None:
    planted.run(0.90)
    run_id = planted.run(0.95, accel="clip", accel__clip__max_norm="1.0")
    planted.experiment = planted.client.create_experiment("elsewhere")
    planted.run(0.10)
    assert "+5.00 points against the baseline (without clipping)" in beside_baseline(planted.client, run_id)
    (line,) = beside_baseline(planted.client, run_id, with_commands=False).splitlines()
    assert line.startswith("+5.00 points")
