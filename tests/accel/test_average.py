"""Averaged weights against NumPy, the statistics measured for them, and training that they leave alone."""

from dataclasses import replace

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from mindspore import Parameter, Tensor, nn

from msaccel.accel.average import METHOD, AverageSettings
from msaccel.accel.average.mean import MeanWeights
from msaccel.checkpoint.state import set_values
from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.errors import CheckpointError, ConfigError
from msaccel.step.batch_norm import RunningStatistics
from tests.running import SMALL, Store

pytestmark = pytest.mark.usefixtures("graph_mode")

SHAPES = {"w": (2, 3), "b": (4,)}


def parameters() -> list[Parameter]:
    return [Parameter(Tensor(np.zeros(shape, np.float32)), name=name) for name, shape in SHAPES.items()]


def drawn_path(seed: int, updates: int) -> list[dict[str, np.ndarray]]:
    """Weights after each of the updates."""
    draw = np.random.default_rng(seed).standard_normal
    return [{name: draw(shape).astype(np.float32) for name, shape in SHAPES.items()} for _ in range(updates)]


def expected_mean(settings: AverageSettings, path: list[dict[str, np.ndarray]], name: str) -> np.ndarray | None:
    """In float64, from the whole path at once."""
    numbers = range(len(path), int(settings.start * len(path)), -settings.every)
    taken = [path[number - 1][name].astype(float) for number in sorted(numbers)]
    if not taken:
        return None
    if settings.form != "ema":
        return np.mean(taken[-settings.last :] if settings.form == "lawa" else taken, axis=0)
    mean = taken[0]
    for snapshot in taken[1:]:
        mean = settings.decay * mean + (1 - settings.decay) * snapshot
    return mean


def walk(mean: MeanWeights, weights: list[Parameter], path: list[dict[str, np.ndarray]]) -> None:
    for values in path:
        set_values(weights, values)
        mean.after_update()


def test_an_average_of_all_updates_does_not_depend_on_the_budget() -> None:
    """So a resumed job may change it (`fixed_budget`); with any other `every` it may not."""
    settings, path = AverageSettings("ema", start=0.0, every=1, decay=0.9, last=1), drawn_path(0, 5)
    of_budgets = []
    for updates in (5, 6, 100):
        weights = parameters()
        mean = MeanWeights(settings, weights, updates)
        walk(mean, weights, path)
        of_budgets.append(mean.state_dict())
    for other in of_budgets[1:]:
        for name, array in of_budgets[0].items():
            np.testing.assert_array_equal(array, other[name])


some_settings = st.builds(
    AverageSettings,
    form=st.sampled_from(["ema", "swa", "lawa"]),
    start=st.sampled_from([0.0, 0.25, 0.5, 0.9]),
    every=st.integers(1, 7),
    decay=st.floats(0.01, 0.99),
    last=st.integers(1, 5),
)


@given(settings=some_settings, updates=st.integers(1, 24), seed=st.integers(0, 2**32 - 1))
@hypothesis_settings(max_examples=40, deadline=None, derandomize=True)
def test_the_mean_is_that_of_float64(settings: AverageSettings, updates: int, seed: int) -> None:
    weights, path = parameters(), drawn_path(seed, updates)
    mean = MeanWeights(settings, weights, updates)
    walk(mean, weights, path)
    with mean.in_place() as differ:
        for weight in weights:
            expected = expected_mean(settings, path, weight.name)
            assert differ == (expected is not None)
            expected = path[-1][weight.name] if expected is None else expected
            np.testing.assert_allclose(weight.asnumpy(), expected, rtol=1e-6, atol=1e-6)
    for weight in weights:
        np.testing.assert_array_equal(weight.asnumpy(), path[-1][weight.name])


@given(settings=some_settings, seed=st.integers(0, 2**32 - 1), at=st.integers(0, 12))
@hypothesis_settings(max_examples=20, deadline=None, derandomize=True)
def test_a_resumed_mean_has_the_same_bits(settings: AverageSettings, seed: int, at: int) -> None:
    weights, path = parameters(), drawn_path(seed, 12)
    through, first, second = (MeanWeights(settings, weights, 12) for _ in range(3))
    walk(through, weights, path)
    walk(first, weights, path[:at])
    second.load_state_dict(first.state_dict())
    walk(second, weights, path[at:])
    for name, value in through.state_dict().items():
        np.testing.assert_array_equal(second.state_dict()[name], value)


@pytest.mark.parametrize(
    ("start", "every", "updates", "advice"),
    [
        (0.5, 60, 100, {"every": 1}),
        (0.99, 5, 100, {"start": 0, "every": 1}),
        (0.9, 5, 10, {"start": 0, "every": 1}),
        (0.5, 1, 1, {}),
    ],
)
def test_what_is_advised_for_a_single_snapshot_gives_several(
    start: float, every: int, updates: int, advice: dict[str, int]
) -> None:
    given = AverageSettings("swa", start, every, 0.99, 10)
    keys = " ".join(f"accel.average.{key}={value}" for key, value in advice.items())
    with pytest.raises(ConfigError, match=f"; {f'write {keys} or ' if keys else ''}train longer") as refused:
        METHOD.evaluation_weights(given, parameters(), updates)
    if advice:
        METHOD.evaluation_weights(replace(given, **advice), parameters(), updates)
    else:
        assert "write" not in str(refused.value), "of one update no setting gives two snapshots"


def test_a_checkpoint_of_other_settings_is_refused() -> None:
    one, other = (MeanWeights(AverageSettings("lawa", 0.5, 1, 0.9, last), parameters(), 9) for last in (2, 3))
    with pytest.raises(CheckpointError, match="of another job"):
        other.load_state_dict(one.state_dict())


@pytest.mark.parametrize("ranks", [1, 2])
def test_statistics_are_means_over_the_batches(ranks: int) -> None:
    class Forward(nn.Cell):
        def __init__(self, network: nn.Cell) -> None:
            super().__init__()
            self.network = network

        def construct(self, images: Tensor, labels: Tensor) -> Tensor:
            return self.network(images)

    network = nn.SequentialCell(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    statistics = RunningStatistics(network, range(ranks), SINGLE_PROCESS)
    forward = Forward(network).set_train()
    draw = np.random.default_rng(0).normal
    batches = [draw(2, 3, (8, 3, 5, 5)).astype(np.float32) for _ in range(4)]
    before = statistics.flat().asnumpy()
    pairs = [(Tensor(batch), Tensor(0, ms.int32)) for batch in batches]
    with statistics.measured_anew(pairs, forward):
        with statistics.averaged():
            first_mean, first_variance, second_mean, _ = (p.asnumpy() for p in network.untrainable_params())
        mean = np.mean([batch.mean((0, 2, 3), dtype=float) for batch in batches], axis=0)
        np.testing.assert_allclose(first_mean, mean, rtol=1e-5, atol=1e-6)
        variances = [batch.astype(float).var((0, 2, 3), ddof=1) for batch in batches]
        np.testing.assert_allclose(first_variance, np.mean(variances, axis=0), rtol=1e-4)
        assert np.abs(second_mean).max() > 1e-3, "behind a convolution too"
    np.testing.assert_array_equal(statistics.flat().asnumpy(), before)
    np.testing.assert_array_equal(statistics.mean(), before)


@pytest.mark.slow
def test_training_is_untouched_and_the_mean_is_scored(store: Store) -> None:
    method = ("accel=average", "accel.average.form=lawa", "accel.average.every=1")
    for overrides in ([], [*method, "accel.average.last=1"], [*method, "accel.average.last=8"]):
        ended = store.run(*SMALL, "model=mlp", *overrides)
        assert ended.returncode == 0, ended.stderr
    plain, last_weights, averaged = (store.history(run) for run in store.runs())
    assert plain["train/loss"] == last_weights["train/loss"] == averaged["train/loss"]
    assert plain["eval/loss"] == last_weights["eval/loss"], "a mean of one snapshot is that snapshot"
    assert plain["eval/loss"] != averaged["eval/loss"]
