"""A single job ends with its comparison, and does not fail for it."""

from __future__ import annotations

import pytest

from msaccel.cli.job_end import log_baseline
from msaccel.compare import at_hand
from msaccel.launch.job_folder import Result
from tests.compare.conftest import Planted, empty, planted

__all__ = ["empty", "planted"]  # fixtures


def test_it_says_how_the_job_did_beside_its_baseline(planted: Planted, capsys: pytest.CaptureFixture[str]) -> None:
    planted.run(0.90)
    run_id = planted.run(0.95, accel="clip", accel__clip__max_norm="2.0")
    typed = ["model=lenet", f"tracking.uri={planted.uri}?a=b"]
    log_baseline(Result("clip-cpu-s0", "FINISHED", run_id, planted.uri), typed)
    printed = capsys.readouterr()
    first, told, *commands = printed.out.splitlines()
    assert first.startswith("clip-cpu-s0: +5.00 points against the baseline (without clipping): 95.00% (n = 1)")
    assert "one run decides nothing" in told and printed.err == ""
    assert f" 'tracking.uri={planted.uri}?a=b' " in commands[0] and "model=lenet" not in commands[0]


@pytest.mark.parametrize(
    "result", [Result("a", "FAILED", "id", "uri"), Result("another server's", "FINISHED"), Result("a", "REFUSED")]
)
def test_nothing_is_said_where_there_is_nothing_to_compare(result: Result, capsys: pytest.CaptureFixture[str]) -> None:
    log_baseline(result, [])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("error", [ZeroDivisionError("why"), KeyboardInterrupt()])
def test_the_job_does_not_fail_for_it(
    error: BaseException, planted: Planted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> str:
        raise error

    monkeypatch.setattr(at_hand, "beside_baseline", fails)
    log_baseline(Result("clip-cpu-s0", "FINISHED", "id", planted.uri), [])
    said = capsys.readouterr().err
    if isinstance(error, KeyboardInterrupt):
        assert said == ""
    else:
        assert said == "clip-cpu-s0: was not compared (ZeroDivisionError: why); try python -m msaccel compare.\n"
