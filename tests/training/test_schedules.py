"""Schedules: their shapes, ends and units."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msaccel.schema import ConstantSettings, DecaySettings, ScheduleSettings, StepSettings, TrapezoidSettings
from msaccel.training.schedules import rate

warmups = st.floats(0, 0.5)
peaks = st.floats(1e-6, 10)
totals = st.integers(10, 400)
epochs = st.integers(1, 40)


def schedules(warmup: st.SearchStrategy[float] = warmups) -> st.SearchStrategy[ScheduleSettings]:
    """All kinds, in fractions of the job."""
    milestones = st.lists(st.floats(0.01, 1), max_size=3, unique=True).map(sorted)
    fraction = st.just("fraction")
    return st.one_of(
        st.builds(ConstantSettings, st.just("constant"), fraction, warmup),
        st.builds(StepSettings, st.just("step"), fraction, warmup, milestones, st.floats(0.01, 1)),
        st.builds(DecaySettings, st.sampled_from(["cosine", "linear"]), fraction, warmup, st.floats(0, 1)),
        st.builds(TrapezoidSettings, st.just("trapezoid"), fraction, warmup, st.floats(0, 1), st.floats(0.01, 0.5)),
    )


def rates(schedule: ScheduleSettings, peak: float, total: int, updates_per_epoch: int = 1) -> list[float]:
    return [rate(schedule, peak, update, updates_per_epoch, total) for update in range(total)]


@given(schedule=schedules(), peak=peaks, total=totals)
def test_rates_lie_between_zero_and_the_peak(schedule: ScheduleSettings, peak: float, total: int) -> None:
    assert all(0 <= value <= peak * (1 + 1e-12) for value in rates(schedule, peak, total))


@given(schedule=schedules(), peak=peaks, total=totals)
def test_warm_up_rises_linearly_to_the_peak(schedule: ScheduleSettings, peak: float, total: int) -> None:
    warmup = schedule.warmup * total
    rising = rates(schedule, peak, total)[: math.ceil(warmup)]
    assert rising == pytest.approx([peak * min(1, (update + 1) / warmup) for update in range(len(rising))])
    if rising:
        assert rising[-1] == pytest.approx(peak)


@given(schedule=schedules(), peak=peaks, total=totals)
def test_rates_never_rise_after_warm_up(schedule: ScheduleSettings, peak: float, total: int) -> None:
    falling = rates(schedule, peak, total)[math.ceil(schedule.warmup * total) :]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(falling))


@given(name=st.sampled_from(["cosine", "linear"]), warmup=warmups, final=st.floats(0, 1), peak=peaks, total=totals)
def test_decay_ends_at_the_final_factor(name: str, warmup: float, final: float, peak: float, total: int) -> None:
    schedule = DecaySettings(name, "fraction", warmup, final)
    assert rate(schedule, peak, total, 1, total) == pytest.approx(peak * final, abs=1e-12 * peak)
    assert rate(schedule, peak, total - 1, 1, total) >= peak * final * (1 - 1e-12)


@given(kind=schedules(st.just(0.0)), peak=peaks, updates=st.integers(1, 20), share=st.integers(0, 8), epochs=epochs)
def test_epochs_and_fractions_agree(kind: ScheduleSettings, peak: float, updates: int, share: int, epochs: int) -> None:
    fraction, by_epochs = dict(vars(kind)), dict(vars(kind))
    fraction["warmup"], by_epochs["warmup"] = share / 8, share / 8 * epochs
    if isinstance(kind, StepSettings):  # eighths are exact
        fraction["milestones"], by_epochs["milestones"] = [0.25, 0.625], [0.25 * epochs, 0.625 * epochs]
    if isinstance(kind, TrapezoidSettings):
        fraction["decay"], by_epochs["decay"] = 0.25, 0.25 * epochs
    by_epochs["unit"] = "epochs"
    total = updates * epochs
    expected = rates(type(kind)(**fraction), peak, total)
    assert rates(type(kind)(**by_epochs), peak, total, updates) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (ConstantSettings("constant", "epochs", 0.0), [1.0] * 8),
        (ConstantSettings("constant", "fraction", 0.5), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]),
        (ConstantSettings("constant", "epochs", 1.0), [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        (ConstantSettings("constant", "epochs", 8.0), [update / 16 for update in range(1, 9)]),
        (StepSettings("step", "fraction", 0.0, [0.5, 0.75], 0.1), [1.0, 1.0, 1.0, 1.0, 0.1, 0.1, 0.01, 0.01]),
        (StepSettings("step", "epochs", 0.0, [3.0, 1.0], 0.5), [1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25]),
        (StepSettings("step", "epochs", 2.0, [1.0], 0.5), [0.25, 0.5, 0.75, 1.0, 0.5, 0.5, 0.5, 0.5]),
        (DecaySettings("linear", "fraction", 0.0, 0.0), [1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]),
        (DecaySettings("linear", "fraction", 0.5, 0.2), [0.25, 0.5, 0.75, 1.0, 1.0, 0.8, 0.6, 0.4]),
        (DecaySettings("linear", "epochs", 4.0, 0.0), [update / 8 for update in range(1, 9)]),
        (TrapezoidSettings("trapezoid", "fraction", 0.25, 0.0, 0.5), [0.5, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]),
        (TrapezoidSettings("trapezoid", "epochs", 0.0, 0.2, 2.0), [1.0, 1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4]),
        (DecaySettings("cosine", "fraction", 0.0, 0.0), [(1 + math.cos(math.pi * u / 8)) / 2 for u in range(8)]),
    ],
)
def test_a_job_of_four_epochs_of_two_updates(schedule: ScheduleSettings, expected: list[float]) -> None:
    assert rates(schedule, 3.0, 8, 2) == pytest.approx([3 * value for value in expected])


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_decay_is_halfway_down_in_the_middle(name: str) -> None:
    assert rate(DecaySettings(name, "fraction", 0.5, 0.2), 1.0, 75, 1, 100) == pytest.approx(0.6)
