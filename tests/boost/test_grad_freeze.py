"""`grad_freeze`: what is frozen, how often, and what else changes with it.

A docstring that begins with "Against the documentation" is a "yes" in `docs/boost.md`.
"""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore.boost import (
    BoostTrainOneStepCell,
    BoostTrainOneStepWithLossScaleCell,
    FreezeOpt,
    GradientFreeze,
    LessBN,
)

from tests.boost.training import ROWS, Dense, Stack, manual, model, moved, values

TARGET = Tensor(np.ones((6, 4)), ms.float32)
DEFAULTS = (10, 1, 0.7)  # groups, interval strategy, freeze_p


def sequence(steps: int = 65536, kind: int = 1, freeze_p: float = 0.7) -> np.ndarray:
    """For each update the number of the group that training begins with; 0 trains everything."""
    return np.array(GradientFreeze(10, kind, freeze_p, steps).generate_freeze_index_sequence(10, kind, freeze_p, steps))


def frozen_step(network: Stack, train_strategy: list[int], rates: object = 0.1) -> BoostTrainOneStepCell:
    """A step with two groups: all weights, and the second half of the layers."""
    weights = network.trainable_params()
    groups = [weights, weights[len(weights) // 2 :]]
    optimizer = FreezeOpt(nn.Momentum(weights, rates, 0.9), groups, train_strategy)
    return BoostTrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), optimizer).set_train()


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("freeze_p", [0.5, 0.7, 0.9])
def test_freeze_p(freeze_p: float, kind: int) -> None:
    """Against the documentation: freeze_p is the share of updates in which nothing is frozen."""
    assert np.mean(sequence(kind=kind, freeze_p=freeze_p) == 0) == pytest.approx(freeze_p, abs=0.03)


def test_how_much_is_frozen() -> None:
    """By default 30 % of the updates freeze 37 % of the groups on average, 11 % of all."""
    frozen = sequence() / 10
    assert np.mean(frozen[frozen > 0]) == pytest.approx(0.37, abs=0.01)
    assert np.mean(frozen) == pytest.approx(0.11, abs=0.003)


def test_few_parameters() -> None:
    """Below ten groups of at least three tensors the stride is 0, and nothing is ever frozen."""
    freeze = GradientFreeze(*DEFAULTS, total_steps=10)
    sizes = {depth: [len(g) for g in freeze.split_parameters_groups(Stack(depth), 10)] for depth in (18, 20)}
    assert sizes[18] == [36] * 10
    assert sizes[20] == [40, 36, 32, 28, 24, 20, 16, 12, 8, 4]


def test_one_optimizer_per_group() -> None:
    """Every group has an optimizer with a momentum of its own, beside the original one."""
    network = Stack(2)
    train = model(network, manual(grad_freeze={})).train_network
    moments = {parameter.name for optimizer in train.optimizer.opts for parameter in optimizer.moments}
    assert len(train.optimizer.opts) == len(train.freeze_nets) == 10
    assert len(moments) == 10 * len(network.trainable_params())
    assert len(train.optimizer.single_opt.moments) == len(network.trainable_params())


def test_momentum_is_not_in_a_checkpoint() -> None:
    """A checkpoint holds the momentum of the original optimizer, which is not used, and no other."""
    network = Stack(2)
    train = frozen_step(network, [0, 1])
    train(ROWS, TARGET)
    saved = {parameter.name: parameter for parameter in train.get_parameters()}
    assert not [name for name in saved if "boost_" in name]
    assert not any(saved[moment.name].asnumpy().any() for moment in train.optimizer.single_opt.moments)
    assert all(moment.asnumpy().any() for moment in train.optimizer.opts[0].moments)


def test_nothing_frozen_is_not_the_baseline() -> None:
    """With several groups that all hold everything, training still differs, by the separate momenta."""
    losses = []
    for groups in (1, 2):
        ms.set_seed(0)
        network = Stack(2)
        weights = network.trainable_params()
        optimizer = FreezeOpt(nn.Momentum(weights, 0.1, 0.9), [weights] * groups, [0, groups - 1])
        train = BoostTrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), optimizer).set_train()
        losses.append([float(train(ROWS, TARGET)) for _ in range(4)])
    assert losses[0][:2] == losses[1][:2]
    assert losses[0][2] < losses[1][2], "the second update of each optimizer lacks the other's momentum"


def test_sequence_starts_over() -> None:
    """A training longer than total_steps runs through the same sequence again."""
    network = Stack(2)
    train = frozen_step(network, [0, 1, 1])
    whole = []
    for _ in range(6):
        before = values(network)
        train(ROWS, TARGET)
        changed = moved(network, before)
        assert all(changed[2:])
        whole.append(all(changed))
    assert whole == [True, False, False] * 2
    assert len(sequence()) == int(65536 * 1.01)


def test_ranks_differ() -> None:
    """The sequence is drawn from NumPy's global state; ranks agree only if they have drawn alike before."""
    drawn = []
    for earlier in (0, 1, 0):
        ms.set_seed(0)
        np.random.random(earlier)
        drawn.append(sequence(200).tolist())
    assert drawn[0] != drawn[1]
    assert drawn[0] == drawn[2]


def test_rates_of_a_list() -> None:
    """A list no longer than the sequence is split between the groups, by the updates that each has."""
    optimizer = frozen_step(Stack(2), [0, 1, 1], [0.1, 0.2, 0.3]).optimizer
    assert optimizer.dynamic_learning_rate == [[0.1], [0.2, 0.3]]


@pytest.mark.parametrize("rates", [[0.1, 0.2, 0.3, 0.4], nn.PolynomialDecayLR(0.1, 0.01, 4, 1.0)], ids=["list", "cell"])
def test_schedules_lag(rates: object) -> None:
    """With a longer list or a schedule each optimizer counts its own updates, so the rate lags."""
    train = frozen_step(Stack(2), [0, 1, 1], rates)
    for _ in range(3):
        train(ROWS, TARGET)
    first, second = train.optimizer.opts
    assert (int(first.global_step[0]), int(second.global_step[0])) == (1, 2)
    assert float(first.get_lr()) == pytest.approx(0.2 if isinstance(rates, list) else 0.0775)


def test_groups_of_the_optimizer() -> None:
    """An optimizer with groups fails if one of them is wholly in the frozen layers."""
    network = Stack(4)
    weights = network.trainable_params()
    optimizer = nn.Momentum([{"params": weights[:4], "lr": 0.01}, {"params": weights[4:]}], 0.1, 0.9)
    with pytest.raises(ValueError, match="must not be empty"):
        model(network, manual(grad_freeze={"param_groups": 2}), optimizer=optimizer)


def test_groups_of_less_bn() -> None:
    """O1 itself makes such groups, and fails where only the last layer is left to train."""
    with pytest.raises(ValueError, match="must not be empty"):
        model(Dense(), {"grad_freeze": {"param_groups": 2}})


def test_not_alone() -> None:
    """Against the documentation: grad_freeze switches no other key off; O1 depends on that."""
    built = model(Dense(), manual(grad_freeze={}, less_bn={}))
    assert isinstance(built.train_network.optimizer, FreezeOpt)
    assert isinstance(built.predict_network, LessBN)


def test_adasum_is_not_reached() -> None:
    """With freezing `construct` never comes to Adasum, even where the ranks suffice for it."""
    plain = Stack(2)
    optimizer = nn.Momentum(plain.trainable_params(), 0.1, 0.9)
    with_adasum = BoostTrainOneStepCell(nn.WithLossCell(plain, nn.MSELoss()), optimizer).set_train()
    frozen = frozen_step(Stack(2), [0, 1])
    for train in (with_adasum, frozen):
        train.enable_adasum = True  # without what Adasum needs, so reaching it is an error
    with pytest.raises(AttributeError, match="device_number"):
        with_adasum(ROWS, TARGET)
    assert float(frozen(ROWS, TARGET)) > 0


def test_with_grad_accumulation() -> None:
    """Together with grad_accumulation an attribute is missing, and no network is built."""
    with pytest.raises(AttributeError, match="'_TrainFreezeCell' object has no attribute 'optimizer'"):
        model(Dense(), manual(grad_freeze={}, grad_accumulation={"grad_accumulation_step": 2}))


def test_with_a_changing_loss_scale() -> None:
    """The step for loss scales that change calls the frozen optimizer, which cannot be called."""
    network = Stack(2)
    weights = network.trainable_params()
    optimizer = FreezeOpt(nn.Momentum(weights, 0.1, 0.9), [weights, weights], [0, 1])
    loss = nn.WithLossCell(network, nn.MSELoss())
    with pytest.raises(AttributeError, match="'construct' is not defined"):
        BoostTrainOneStepWithLossScaleCell(loss, optimizer, Tensor(8.0)).set_train()(ROWS, TARGET)
