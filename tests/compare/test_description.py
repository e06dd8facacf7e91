"""The description of a run: result, difference to its baseline, command; what the user wrote stays."""

from msaccel.compare.description import describe
from msaccel.tracking.ui_view import DESCRIPTION
from tests.compare.conftest import Planted

BESIDE = "+0.50 points\nthis would:\n  python run.py"
TIMES = {"metric_time__train_s": 12.34, "metric_throughput__samples_per_sec": 9870.4}


def said(planted: Planted, run: str, note: str = "", overrides: tuple[str, ...] = ("accel=clip",)) -> str:
    describe(planted.client, run, note, overrides, BESIDE)
    return str(planted.client.get_run(run).data.tags[DESCRIPTION])


def test_result_difference_and_command(planted: Planted) -> None:
    run = planted.run(0.975, accel="clip", **TIMES)
    planted.client.set_tag(run, DESCRIPTION, "Does it help?")
    text = said(planted, run, "Does it help?", ("accel=clip", "sweep.resume=true", "tracking.note=Does it help?"))
    assert text.split("\n\n") == [
        "Does it help?",
        "**final accuracy 97.50%, best accuracy 97.50%, 12.3 s of training, 9,870 samples/s**",
        "+0.50 points",
        "this would:",
        "    python run.py",
        "```\npython run.py accel=clip 'tracking.note=Does it help?'\n```",
    ]


def test_simulated_ranks_have_no_times(planted: Planted) -> None:
    text = said(planted, planted.run(0.9, tag_simulated="true", **TIMES), overrides=())
    assert text.startswith("**final accuracy 90.00%, best accuracy 90.00%**\n\n+0.50")


def test_what_the_user_wrote_stays(planted: Planted) -> None:
    run = planted.run(0.9)
    planted.client.set_tag(run, DESCRIPTION, "mine")
    assert said(planted, run, "a note") == "mine"


def test_no_password_and_no_more_than_mlflow_takes(planted: Planted) -> None:
    assert "secret" not in said(planted, planted.run(0.9), overrides=("tracking.uri=http://me:secret@host",))
    assert "nnn" not in said(planted, planted.run(0.9), overrides=("tracking.note=" + "n" * 6000,))
