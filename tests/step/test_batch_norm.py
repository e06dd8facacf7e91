"""Running statistics of virtual ranks: each its own, their mean for an evaluation, and nothing moved in passing."""

import numpy as np
import pytest
from mindspore import Parameter, ParameterTuple, Tensor, nn

from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.step.batch_norm import RunningStatistics

pytestmark = pytest.mark.usefixtures("graph_mode")

MANY = 212  # a ResNet-101 has as many


class Statistics(nn.Cell):
    """Nothing but statistics, numbered from 0."""

    def __init__(self, count: int) -> None:
        super().__init__()
        values = [Parameter(Tensor(np.full(3, i, np.float32)), name=f"s{i}", requires_grad=False) for i in range(count)]
        self.values = ParameterTuple(values)

    def set(self, number: float) -> None:
        for value in self.values:
            value.set_data(Tensor(np.full(3, number, np.float32)))

    def numbers(self) -> list[float]:
        return [float(value.asnumpy()[0]) for value in self.values]


@pytest.mark.slow
def test_each_rank_has_its_own_and_all_have_a_mean() -> None:
    network = Statistics(MANY)
    statistics = RunningStatistics(network, range(4), SINGLE_PROCESS)
    for rank in (2, 0):
        with statistics.of(rank):
            assert network.numbers() == list(range(MANY)), "what every rank begins with"
            network.set(rank + 10.0)
    with statistics.of(2):
        assert network.numbers() == [12.0] * MANY
    expected = [(12 + 10 + 2 * i) / 4 for i in range(MANY)]
    with statistics.averaged():
        assert network.numbers() == expected
    assert network.numbers() == [12.0] * MANY
    np.testing.assert_allclose(statistics.mean(), np.repeat(expected, 3))


def test_untouched_takes_back_what_moved() -> None:
    network = Statistics(3)
    statistics = RunningStatistics(network, [0], SINGLE_PROCESS)
    with statistics.untouched():
        network.set(7.0)
    assert network.numbers() == [0, 1, 2]


def test_a_network_without_statistics() -> None:
    statistics = RunningStatistics(nn.Dense(2, 2), range(4), SINGLE_PROCESS)
    with statistics.of(1), statistics.untouched(), statistics.averaged():
        pass
    assert not statistics.any
