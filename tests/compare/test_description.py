"""The description of a run: result, difference to its baseline, command; what the user wrote stays."""

import pytest

from msaccel.compare.description import describe
from msaccel.tracking.saved_view import DESCRIPTION
from tests.compare.conftest import Planted

TIMES = {"metric_time__train_s": 12.34, "metric_throughput__samples_per_sec": 9870.4}


def said(planted: Planted, run: str, note: str = "", overrides: tuple[str, ...] = ("accel=clip",)) -> str:
    describe(planted.client, run, note, overrides)
    return str(planted.client.get_run(run).data.tags[DESCRIPTION])


def test_result_difference_and_command(planted: Planted) -> None:
    planted.runs([0.96, 0.98])
    run = planted.run(0.975, accel="clip", accel__clip__max_norm="1.0", **TIMES)
    planted.client.set_tag(run, DESCRIPTION, "Does it help?")
    text = said(planted, run, "Does it help?", ("accel=clip", "sweep.resume=true", "tracking.note=Does it help?"))
    assert text.split("\n\n") == [
        "Does it help?",
        "**final accuracy 97.50%, best accuracy 97.50%, 12.3 s of training, 9,870 samples/s**",
        "+0.50 points against the baseline (without clipping): 97.00%, the mean of 2 runs. Whether that is more than "
        "chance says `python -m msaccel compare`.",
        "```\npython run.py accel=clip 'tracking.note=Does it help?'\n```",
    ]


def test_accumulation_has_two_baselines(planted: Planted) -> None:
    planted.run(0.9)
    planted.run(0.8, train__batch_size="128")
    run = planted.run(0.85, accel="accum", accel__accum__steps="4")
    text = said(planted, run)
    assert "-5.00 points against the baseline (same micro-batch): 90.00%, the mean of 1 run." in text
    assert "+5.00 points against the baseline (same global batch): 80.00%" in text


@pytest.mark.parametrize("unlike", [{"status": "FAILED"}, {"train__epochs": "4"}, {"precision": "fp16"}])
def test_runs_that_are_no_baseline_are_not_used(planted: Planted, unlike: dict[str, str]) -> None:
    planted.run(0.9, **unlike)
    text = said(planted, planted.run(0.85, accel="clip"))
    assert "points" not in text and "there is no baseline; train" in text


def test_a_baseline_at_another_rate_is_named_and_not_used(planted: Planted) -> None:
    planted.run(0.9, optimizer__lr="0.1")
    assert "the nearest one has another optimizer.lr." in said(planted, planted.run(0.85, accel="clip"))


def test_a_baseline_and_simulated_ranks(planted: Planted) -> None:
    """A baseline has no other one, and virtual ranks no times."""
    planted.run(0.9, 1, tag_simulated="true", **TIMES)
    text = said(planted, planted.run(0.9, tag_simulated="true", **TIMES), overrides=())
    assert text == "**final accuracy 90.00%, best accuracy 90.00%**\n\n```\npython run.py\n```"


def test_what_the_user_wrote_stays(planted: Planted) -> None:
    run = planted.run(0.9)
    planted.client.set_tag(run, DESCRIPTION, "mine")
    assert said(planted, run, "a note") == "mine"


def test_no_password_and_no_more_than_mlflow_takes(planted: Planted) -> None:
    assert "secret" not in said(planted, planted.run(0.9), overrides=("tracking.uri=http://me:secret@host",))
    assert "run.py" not in said(planted, planted.run(0.9), overrides=("tracking.note=" + "n" * 6000,))
