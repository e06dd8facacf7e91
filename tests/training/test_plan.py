"""When a job evaluates: at every multiple of `train.eval_every` epochs; and what planning it does without."""

import subprocess
import sys
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msaccel.config.compose import from_overrides
from msaccel.training.plan import Plan


@cache  # composing takes most of the time of an example
def plan_of(every: str) -> Plan:
    return Plan(from_overrides(["data=synthetic", "model=mlp", f"train.eval_every={every}"]), 1000)


@given(every=st.sampled_from(["0.001", "0.07", "0.1", "0.25", "0.3", "1", "1.5", "2", "3"]), updates=st.integers(1, 60))
def test_it_evaluates_after_the_first_update_at_or_beyond_each_multiple(every: str, updates: int) -> None:
    plan, epochs = plan_of(every), 7
    found = {epoch * updates + update for epoch in range(epochs) for update in plan.evaluations(epoch, updates)}
    number_of_multiples = int(epochs / Fraction(every))
    assert found == {-(-(k * Fraction(every) * updates) // 1) for k in range(1, number_of_multiples + 1)}


@pytest.mark.parametrize("every", [1, 2, 3])
def test_whole_epochs_are_evaluated_at_their_ends_only(every: int) -> None:
    assert [plan_of(str(every)).evaluations(epoch, 40) for epoch in range(6)] == [
        {40} if (epoch + 1) % every == 0 else set() for epoch in range(6)
    ]


def test_a_job_is_planned_without_mindspore() -> None:
    """Benchmarks of other frameworks do: MindSpore counted as their memory, and TensorFlow crashed beside it."""
    code = "import sys, msaccel.training.plan; sys.exit('mindspore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
