"""The command that is advised where a baseline is missing: it can be started, and its runs are the baseline."""

from __future__ import annotations

import shlex
from itertools import cycle

import pytest
from hydra import initialize_config_dir

from msaccel.__main__ import main
from msaccel.accel import label, methods
from msaccel.compare.advice import train_baseline
from msaccel.compare.baselines import is_baseline, pairs, without_baseline
from msaccel.compare.groups import ComparisonSet, conditions, group
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.runs import Record
from msaccel.config.checks import refusals, without_effect
from msaccel.config.compose import from_overrides
from msaccel.config.groups import GROUPS
from msaccel.files import CONF
from msaccel.schema import parameters
from tests.compare.conftest import Planted

METHODS = [f"accel={name}" for name in methods()]
OF_RESNETS = ("accel=lessbn", "accel=resize")
RECIPES = [f"experiment={path.stem}" for path in sorted((CONF / "experiment").glob("*.yaml"))]
DEVICES = [f"device={option}" for option in GROUPS["device"]]
RATES = [
    (f"optimizer={one}", f"schedule={other}")
    for one, other in zip(cycle(GROUPS["optimizer"]), GROUPS["schedule"], strict=False)
]
UNUSUAL = (
    "model.init='normal(0.01)'", "schedule=step", "schedule.milestones=[0.25,0.5]", "data=synthetic", "model=resnet50",
    "model.depth=20", "precision=fp16", "loss_scale.mode=dynamic", "accel.clip.max_norm=2", "train.max_updates=40",
    r"tracking.experiment='it\'s mine'", "data.train_size=512", "checkpoint.keep=5", "optimizer.lr=3e-05",
)  # fmt: skip
CHOSEN = [
    *((one, "accel=clip") for one in DEVICES),
    *((*both, "accel=clip") for both in RATES),
    *((one, "device=ascend16") for one in METHODS if one not in OF_RESNETS),
    *((one, "device=ascend16", "model=resnet50", "data=synthetic") for one in OF_RESNETS),
    *((one, *(("data.root=/photographs",) if "resnet50_" in one else ())) for one in RECIPES),
    ("accel=[accum,clip]", "data=cifar10", "model=resnet50", "device=cpu4"),
    (*UNUSUAL, "accel=clip"),
    ("tracking.experiment='1e-3'", "accel=clip"),
]


def trained(*overrides: str, seed: int = 0) -> Record:
    """The run that a job would have left, its ranks simulated where they are no CPU's."""
    config = from_overrides([*overrides, f"seed={seed}"])
    assert [*refusals(config), *without_effect(config, overrides)] == []
    simulated = config.device.simulate == "always" or config.device.target != "CPU"
    config.device.simulate = "always" if simulated else "never"
    params = {"accel": label(config.accel), **parameters(config)}
    metrics = {"final/accuracy": 0.9, "epoch": float(config.train.epochs or 1)}
    tags = {"simulated": str(simulated).lower()}
    return Record(f"{overrides}{seed}", "0", "run", "FINISHED", seed, seed, params, tags, metrics)


def advised(sentence: str) -> list[str]:
    """The overrides of the command that ends the sentence, without the seeds."""
    program, script, *words = shlex.split(sentence.partition("train it: ")[2].removesuffix("."))
    assert (program, script, words[0], words[-1]) == ("python", "run.py", "-m", "seed=0,1")
    return words[1:-1]


@pytest.mark.slow
@pytest.mark.parametrize("chosen", CHOSEN, ids=" ".join)
def test_the_command_trains_what_is_missing(chosen: tuple[str, ...]) -> None:
    runs = [trained(*chosen, seed=seed) for seed in (0, 1)]
    (found,) = group(runs)
    accepted = pairs(found)
    refused = without_baseline(found, accepted, [found])
    if is_baseline(found.methods[0]):
        assert not refused
        return
    (refusal,) = refused
    baseline = trained(*advised(refusal.sentence))
    assert not accepted and conditions(baseline) == conditions(runs[0])
    (whole,) = group([*runs, baseline])
    pair, *_ = pairs(whole)
    assert pair.differing == () and pair.baseline.runs == [baseline]


def test_the_other_baseline_of_accumulation_has_the_same_budget() -> None:
    updates = ("accel=accum", "accel.accum.steps=4", "train.max_updates=10", "train.batch_size=16")
    runs = [trained(*updates, seed=seed) for seed in (0, 1)]
    sets = group([*runs, trained("train.max_updates=40", "train.batch_size=16")])
    sentences = [refusal.sentence for found in sets for refusal in without_baseline(found, pairs(found), sets)]
    assert len(sentences) == 1 and {"train.max_updates=10", "train.batch_size=64"} <= set(advised(sentences[0]))


def test_the_baseline_at_the_same_micro_batch_has_the_same_budget() -> None:
    """An update of it has fewer samples than one of accumulation."""
    runs = [trained("accel=accum", "accel.accum.steps=4", "train.max_updates=10", seed=seed) for seed in (0, 1)]
    (found,) = group(runs)
    (refusal,) = without_baseline(found, [], [found])
    assert "train.max_updates=40" in advised(refusal.sentence)
    sets = group([*runs, trained(*advised(refusal.sentence))])
    assert len(sets) == 1 and pairs(sets[0])[0].differing == ()


def test_seeds_that_diverged_are_seeds_of_the_baseline_too(planted: Planted) -> None:
    planted.run(0.9, 0, accel="clip")
    planted.run(0.1, 1, "FAILED", tag_diverged="true", accel="clip")
    ((refusal,),) = [section.refused for section in planted.report().sections]
    assert refusal.sentence.endswith("seed=0,1.")


def test_one_cause_is_one_refusal(planted: Planted) -> None:
    planted.runs([0.9, 0.91])
    elsewhere = {
        "device__target": "Ascend",
        "device__name": "ascend16",
        "device__servers": "2",
        "tag_simulated": "true",
    }
    for norm in ("1.0", "2.0"):
        planted.runs([0.9, 0.91], **elsewhere, accel="clip", accel__clip__max_norm=norm)
    (refusal,) = [one for section in planted.report().sections for one in section.refused]
    assert "device.servers is 2 for clip, accel.clip.max_norm=1.0; clip, accel.clip.max_norm=2.0" in refusal.sentence
    assert " and 1 for none, device.target Ascend and CPU, simulated true and false; train it: " in refusal.sentence
    assert {"device=ascend16", "device.simulate=always"} <= set(advised(refusal.sentence))


@pytest.mark.parametrize("text", ["${oc.env:HOME}", "x y; rm -rf", "[", "9" * 5000])
def test_no_command_is_made_of_what_no_job_has_logged(text: str) -> None:
    run = trained("accel=clip", "data=synthetic")
    for key in ("optimizer.lr", "model.name", "train.batch_size", "data.train_size"):
        run.params[key] = text
        method = MethodRuns({"accel": "clip"}, [run])
        assert train_baseline(method, ()) == "train the same with accel=none and as many seeds"
        assert ComparisonSet(conditions(run), [method], []).title


def test_the_command_names_the_store_that_was_typed(planted: Planted, capsys: pytest.CaptureFixture[str]) -> None:
    """In the default one the baseline would be of no use, and the same advice would come again."""
    planted.runs([0.9, 0.91], accel="clip")
    planted.run(0.9, 1, accel="clip")  # the same seed once more
    main(["compare", "--tracking-uri", planted.uri])
    said = capsys.readouterr().out.replace(" \\\n", " ")
    command = shlex.split(said[said.index("python run.py") :].split("\n\n")[0])
    assert f"tracking.uri={planted.uri}" in command
    assert any(word.startswith("seed=0,1") and "seed=0,1,1" not in word for word in command), command


@pytest.mark.parametrize("command", ["compare", "status"])
def test_an_experiment_that_is_not_there_names_those_that_are(
    planted: Planted, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--experiment", "nothere", "--tracking-uri", planted.uri]) == 2
    assert capsys.readouterr().err == (
        "--experiment=nothere does not exist in this store; write one of lenet-mnist, Default.\n"
    )


@pytest.mark.parametrize("command", ["compare", "status"])
def test_an_experiment_that_was_deleted_is_named(
    planted: Planted, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    planted.client.delete_experiment(planted.client.create_experiment("old"))
    assert main([command, "--experiment", "old", "--tracking-uri", planted.uri]) == 2
    assert capsys.readouterr().err == (
        "--experiment=old was deleted in MLflow; restore it there or name another experiment.\n"
    )


def test_a_command_is_composed_at_the_end_of_a_sweep_too() -> None:
    """Where Hydra is initialized already."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert from_overrides(["accel=clip", "seed=3"]).seed == 3
