"""Every unfair pair is refused or flagged, each with a sentence that names the key and the mend."""

from __future__ import annotations

import pytest

from msaccel.compare.baselines import SAME_GLOBAL_BATCH, SAME_MICRO_BATCH
from msaccel.compare.render import format
from msaccel.compare.report import Section
from msaccel.compare.verdicts import Verdict
from msaccel.errors import UserError

from .conftest import Planted

GOOD, BETTER = [0.90, 0.91, 0.92], [0.95, 0.96, 0.97]
CLIP = {"accel": "clip", "accel__clip__max_norm": "1.0"}
ACCUM = {"accel": "accum", "accel__accum__steps": "4"}


def flagged(section: Section) -> dict[str, str]:
    return {flag.aspect: flag.sentence for comparison in section.comparisons for flag in comparison.flags}


def test_a_fair_pair_has_no_flag(planted: Planted) -> None:
    planted.runs(GOOD)
    planted.runs(BETTER, **CLIP)
    section = planted.section()
    assert [comparison.pair.name for comparison in section.comparisons] == ["without clipping"]
    assert flagged(section) == {} and section.refused == [] and section.notes == []


@pytest.mark.parametrize(
    ("aspect", "other", "phrase"),
    [
        ("model", {"model__init": "normal(0.01)"}, "model.init is normal(0.01) for clip and default for none"),
        ("data", {"digest": "d2"}, "digest is d2 for clip and d1 for none; train both on the same files"),
        (
            "data",
            {"data__limit_train": "1000"},
            "train it: python run.py -m accel=none data.limit_train=1000 data.val_fraction=0.0833333 seed=0,1,2.",
        ),
        ("data", {"data__limit_eval": "1000"}, " data.limit_eval=1000 "),
        ("data", {"data__val_fraction": "0.1"}, " data.val_fraction=0.1 "),
        ("device", {"device__ranks_per_server": "4"}, " device.ranks_per_server=4 "),
        ("device", {"device__threads": "1"}, "another device: device.threads is 1 for clip and 2 for none"),
        (
            "simulated",
            {"tag_simulated": "true"},
            "times are never compared: simulated is true for clip",
        ),
        ("evaluation", {"train__eval_every": "2"}, " train.eval_every=2 "),
        ("budget", {"train__epochs": "4"}, "budget is 4 epochs for clip and 3 epochs for none"),
        ("budget", {"train__max_updates": "100", "metric_epoch": 0.5}, " train.max_updates=100 "),
    ],
)
def test_other_conditions_are_refused(planted: Planted, aspect: str, other: dict[str, str], phrase: str) -> None:
    planted.runs(GOOD)
    planted.runs(BETTER, **CLIP, **other)
    sections = planted.report().sections
    assert len(sections) == 2 and not any(section.comparisons for section in sections)
    (refusal,) = [refusal for section in sections for refusal in section.refused]
    assert refusal.aspect == aspect and phrase in refusal.sentence and refusal.sentence.startswith("Refused, ")


def test_another_batch_without_accumulation_is_refused(planted: Planted) -> None:
    planted.runs(GOOD, train__batch_size="64")
    planted.runs(BETTER, **CLIP)
    section = planted.section()
    assert section.comparisons == [] and [refusal.aspect for refusal in section.refused] == ["batch"]
    assert "train it: python run.py -m accel=none" in section.refused[0].sentence


def test_no_baseline_anywhere(planted: Planted) -> None:
    planted.runs(BETTER, **CLIP)
    (refusal,) = planted.section().refused
    assert (
        refusal.aspect == "missing"
        and "there is no baseline; train it: python run.py -m accel=none" in refusal.sentence
    )


@pytest.mark.parametrize(
    ("aspect", "other", "phrase"),
    [
        ("commit", {"tag_git_commit": "b" * 40}, "git_commit is bbbbbbbbbbbb for clip and aaaaaaaaaaaa for none"),
        ("dirty", {"tag_git_commit": "a" * 40 + "-dirty"}, "git_commit is aaaaaaaaaaaa-dirty: files differed"),
        ("schedule", {"metric_epoch": 1.5}, "was made for 3 epochs, and 3 of 3 runs ended after 1.5"),
        ("settings", {"optimizer__momentum": "0.5"}, "optimizer.momentum is 0.5 for clip and 0.9 for none"),
        ("selection", {"tag_selected_on": "test"}, "data.val_fraction=0.0833333 avoids that"),
    ],
)
def test_reservations_are_flagged(planted: Planted, aspect: str, other: dict[str, str], phrase: str) -> None:
    planted.runs(GOOD, optimizer__momentum="0.9")
    planted.runs(BETTER, **{"optimizer__momentum": "0.9", **CLIP, **other})
    found = flagged(planted.section())
    assert phrase in found[aspect]
    assert found.keys() <= {aspect, "commit"}, "a dirty commit is another commit too"


def test_a_rate_tuned_for_one_side_is_flagged(planted: Planted) -> None:
    planted.runs(GOOD)
    for rate in ("0.01", "0.02", "0.05"):
        planted.runs(BETTER, optimizer__lr=rate, **CLIP)
    section = planted.section()
    assert "optimizer.lr was tried at 3 values for clip and at 1 for none" in flagged(section)["rate"]
    assert "optimizer.lr is 0.02 for clip and 0.01 for none" in "\n".join(section.flags)


@pytest.mark.parametrize("status", ["FAILED", "KILLED", "RUNNING"])
def test_unfinished_runs_are_listed_and_never_averaged(planted: Planted, status: str) -> None:
    planted.runs(GOOD)
    planted.runs(BETTER, **CLIP)
    planted.run(0.1, 3, status, **CLIP)
    report = planted.report()
    assert [run.status for run in report.unfinished] == [status]
    assert f"1 {status} of 4 runs of clip, not averaged" in flagged(report.sections[0])["unfinished"]
    assert report.sections[0].comparisons[0].estimates["final_accuracy"].n == (3, 3)
    planted.run(0.96, 3, **CLIP)
    assert "unfinished" not in flagged(planted.report().sections[0]), "that seed was trained again"


def test_only_unfinished_runs_are_one_sentence(planted: Planted) -> None:
    planted.run(0.5, status="FAILED")
    with pytest.raises(UserError, match=r"no finished run to compare \(1 FAILED\)"):
        planted.report()


def test_accumulation_has_two_baselines(planted: Planted) -> None:
    planted.runs(BETTER, **ACCUM)
    planted.runs(GOOD)
    (missing,) = planted.section().refused
    assert " train.batch_size=128 " in missing.sentence
    planted.runs(GOOD, train__batch_size="128")
    section = planted.section()
    assert section.refused == []
    batches = {
        comparison.pair.name: comparison.pair.baseline.param("train.batch_size") for comparison in section.comparisons
    }
    assert batches == {SAME_MICRO_BATCH: "32", SAME_GLOBAL_BATCH: "128"}
    assert flagged(section) == {}


@pytest.mark.parametrize(
    ("label", "name"),
    [("adasum", "mean over the same ranks"), ("dimreduce", "same budget"), ("clip+adasum", "without clipping, mean")],
)
def test_baselines_are_named(planted: Planted, label: str, name: str) -> None:
    planted.runs(GOOD)
    planted.runs(BETTER, accel=label)
    (comparison,) = planted.section().comparisons
    assert comparison.pair.name.startswith(name)


def test_loss_scaling_is_a_method_though_it_fills_no_slot(planted: Planted) -> None:
    planted.runs(GOOD, precision="fp16", loss_scale__mode="none")
    planted.runs(BETTER, precision="fp16", loss_scale__mode="dynamic")
    (comparison,) = planted.section().comparisons
    assert comparison.pair.name == "without loss scaling" and comparison.flags == []


def test_a_method_is_not_compared_with_a_baseline_in_another_precision(planted: Planted) -> None:
    planted.runs(GOOD)
    planted.runs(BETTER, **CLIP, precision="fp16")
    section = planted.section()
    (refused,) = section.refused
    assert not section.comparisons and refused.aspect == "precision"
    assert "another precision: precision is fp16 for clip" in refused.sentence
    assert " and fp32 for none; train it: python run.py" in refused.sentence
    planted.runs(GOOD, precision="fp16")
    section = planted.section()
    assert {(one.pair.method.label, one.pair.baseline.label, one.pair.name) for one in section.comparisons} == {
        ("clip, precision=fp16", "none, precision=fp16", "without clipping"),
        ("none, precision=fp16", "none, precision=fp32", "float32"),
    }
    assert not section.refused and "fp16 and fp32" in section.title


def test_the_baseline_of_a_precision_is_float32_with_or_without_loss_scaling(planted: Planted) -> None:
    planted.runs(GOOD)
    planted.runs(BETTER, precision="fp16", loss_scale__mode="dynamic")
    section = planted.section()
    (comparison,) = section.comparisons
    assert comparison.pair.name == "float32" and comparison.flags == [] and not section.refused
    assert comparison.pair.baseline.param("precision") == "fp32"


def test_the_float32_baseline_has_no_loss_scale_where_there_is_one_without(planted: Planted) -> None:
    planted.runs(GOOD, loss_scale__mode="none")
    planted.runs(GOOD, loss_scale__mode="static", loss_scale__scale="1024.0")
    planted.runs(BETTER, precision="fp16", loss_scale__mode="none")
    baselines = [one.pair.baseline for one in planted.section().comparisons if one.pair.name == "float32"]
    assert [one.param("loss_scale.mode") for one in baselines] == ["none"]


def test_a_refused_batch_is_that_of_a_baseline_of_the_same_precision(planted: Planted) -> None:
    planted.runs(GOOD, precision="fp16", train__batch_size="64")
    planted.runs(GOOD, train__batch_size="32")
    planted.runs(BETTER, **CLIP, train__batch_size="64")
    (refused,) = planted.section().refused
    assert refused.sentence.startswith("Refused: train.batch_size is 64 for clip")
    assert " and 32 for none, so updates differ in size" in refused.sentence


def test_a_method_in_a_lower_precision_is_compared_with_itself_in_float32(planted: Planted) -> None:
    """Where there is no baseline without it, as in a recipe that always clips."""
    planted.runs(GOOD, **CLIP, precision="fp32")
    planted.runs(BETTER, **CLIP, precision="bf16")
    section = planted.section()
    (comparison,) = section.comparisons
    assert comparison.pair.name == "float32" and comparison.pair.baseline.param("precision") == "fp32"
    assert not section.refused
    planted.runs(GOOD, precision="bf16")
    of_bf16 = [one.pair.name for one in planted.section().comparisons if one.pair.method.param("precision") == "bf16"]
    assert of_bf16 == ["without clipping"]


def test_simulated_times_get_no_verdict(planted: Planted) -> None:
    times = {"tag_simulated": "true", "metric_throughput__samples_per_sec": 100.0, "metric_time__train_s": 9.0}
    planted.runs(GOOD, **times)
    planted.runs(BETTER, accel="adasum", **times)
    section = planted.section()
    (comparison,) = section.comparisons
    assert (
        comparison.verdicts["speed"].verdict is Verdict.SIMULATED and "simulated=true" in flagged(section)["simulated"]
    )
    assert not comparison.estimates.keys() & {"samples_per_sec", "train_s"}
    assert not {"samples/s", "training s"} & {*format.heads(section.found)}, "nor are they in a table"


def test_stopped_at_the_target_has_the_budget_that_was_planned(planted: Planted) -> None:
    stop = {"train__max_updates": "100", "train__stop_at_target": "True"}
    planted.runs(GOOD, metric_epoch=0.5, **stop)
    planted.runs(BETTER, metric_epoch=0.4, **stop, **CLIP)
    assert len(planted.section().comparisons) == 1


def test_a_busy_machine_is_flagged(planted: Planted) -> None:
    planted.runs(GOOD, metric_machine__contended=0.09)
    planted.runs(BETTER[:2], **CLIP, metric_machine__contended=0.02)
    planted.run(BETTER[2], 2, **CLIP, metric_machine__contended=0.34)
    assert flagged(planted.section()) == {
        "busy": "machine/contended: other programs took up to 34% of the processor time of 1 of 3 runs of clip, so its "
        "speed is too low; train them again on a quiet machine: seed=2."
    }


def test_a_busy_machine_is_no_matter_where_times_mean_nothing(planted: Planted) -> None:
    planted.runs(GOOD, tag_simulated="true")
    planted.runs(BETTER, **CLIP, tag_simulated="true", metric_machine__contended=0.9)
    assert "busy" not in flagged(planted.section())
