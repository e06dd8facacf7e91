"""The other keys: `adasum`, `grad_accumulation`, `dim_reduce`, `loss_scale_group`.

A docstring that begins with "Against the documentation" is a "yes" in `docs/boost.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import ParameterTuple, Tensor, nn
from mindspore.boost import (
    AdaSum,
    BoostTrainOneStepCell,
    BoostTrainOneStepWithLossScaleCell,
    DimReduce,
    GroupLossScaleManager,
    LessBN,
    adasum,
    base,
    boost_cell_wrapper,
)

from tests.boost.training import LABELS, ROWS, Dense, manual, model, moved, values


def test_adasum_needs_16_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adasum runs with 8 times 2, 4, 8, ... ranks and is silently left out otherwise."""
    step = SimpleNamespace(optimizer=SimpleNamespace(adasum=True), reducer_flag=True)  # and no device_number to ask
    enabled = []
    for ranks in (1, 2, 4, 8, 16, 24, 32, 40, 64):
        monkeypatch.setattr(boost_cell_wrapper, "get_group_size", lambda ranks=ranks: ranks)
        if BoostTrainOneStepCell.check_adasum_enable(step):
            enabled.append(ranks)
    assert enabled == [16, 32, 64]


def test_adasum_alone_in_one_process() -> None:
    """In one process there is neither Adasum nor a word about it."""
    train = model(Dense(), manual(adasum={})).train_network
    assert train.optimizer.adasum
    assert not train.enable_adasum


def test_adasum_of_ascend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages go through Ascend's group `hccl_world_group`, whatever the device is."""
    monkeypatch.setattr(adasum, "create_group", lambda *_: None)
    combine = AdaSum(0, 8, 2, ParameterTuple(Dense().trainable_params()))
    (sends,), (receives,) = combine.send_list_forward, combine.recv_list_forward
    assert {operator.group for operator in sends + receives} == {"hccl_world_group"}


def test_accumulation_by_default() -> None:
    """Switched on without `grad_accumulation_step`, which no page names, it does nothing."""
    train = model(Dense(), manual(grad_accumulation={})).train_network
    assert not train.use_grad_accumulation


def test_accumulation() -> None:
    """With a number of steps the mean of the gradients is applied, as it should be; the loss is None."""
    accumulated, whole = Dense(), Dense()
    ms.load_param_into_net(whole, accumulated.parameters_dict())
    config = manual(grad_accumulation={"grad_accumulation_step": 2})
    train = model(accumulated, config).train_network
    before = values(accumulated)
    assert train(ROWS[:3], LABELS[:3]) is None
    assert not any(moved(accumulated, before))
    train(ROWS[3:], LABELS[3:])
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    plain = nn.TrainOneStepCell(nn.WithLossCell(whole, loss), nn.Momentum(whole.trainable_params(), 0.1, 0.9))
    plain.set_train()(ROWS, LABELS)
    for found, expected in zip(values(accumulated), values(whole), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_dim_reduce_replaces_the_optimizer(snapshots: dict[str, object]) -> None:
    """The optimizer of the user is dropped for SGD with rate 1, with its rate and its weight decay."""
    network = Dense()
    optimizer = nn.Adam(network.trainable_params(), 0.001, weight_decay=0.1)
    train = model(network, manual(dim_reduce=snapshots), optimizer=optimizer).train_network
    assert type(train.optimizer) is nn.SGD
    assert float(train.optimizer.learning_rate) == 1
    assert not train.optimizer.exec_weight_decay


def test_dim_reduce_trains(snapshots: dict[str, object]) -> None:
    """It trains on a CPU in one process, and the loss falls where it is returned."""
    scale = ms.amp.FixedLossScaleManager(1.0, drop_overflow_update=False)
    train = model(Dense(), manual(dim_reduce=snapshots), loss_scale_manager=scale).train_network
    losses = [float(train(ROWS, LABELS)) for _ in range(4)]
    assert losses[-1] < losses[0]


def test_dim_reduce_is_not_alone(snapshots: dict[str, object]) -> None:
    """Against the documentation: dim_reduce switches less_bn and grad_freeze off, but not grad_accumulation."""
    others: dict[str, Any] = {"less_bn": {}, "grad_freeze": {}, "grad_accumulation": {"grad_accumulation_step": 2}}
    built = model(Dense(), manual(dim_reduce=snapshots, **others))
    assert not isinstance(built.predict_network, LessBN)
    assert not built.train_network.freeze
    assert built.train_network.enable_dim_reduce and built.train_network.use_grad_accumulation


def test_dim_reduce_needs_snapshots(snapshots: dict[str, object]) -> None:
    """It needs as many checkpoints as components, 32 by default, from an earlier training."""
    with pytest.raises(ValueError, match="less than: n_component 32"):
        model(Dense(), manual(dim_reduce=snapshots | {"n_components": 32}))


def test_dim_reduce_and_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number of ranks that does not divide the components loses some, and then fails."""
    monkeypatch.setattr(base, "get_group_size", lambda: 3)
    base._save_local_pca_mat(np.ones((32, 5)), str(tmp_path / "pca.npy"), 32)
    assert sum(len(np.load(tmp_path / f"pca_rank_{rank}.npy")) for rank in range(3)) == 30
    network = Dense()
    with pytest.raises(ValueError, match="negative dimensions"):
        DimReduce(network, None, network.trainable_params(), np.ones((10, 43)), 32, 0.55, 0.9, 0.001, 0.4, 0, 3)


def test_dim_reduce_rounds_the_loss() -> None:
    """Between ranks the line search divides the loss with `//`, which rounds it down to a whole number."""
    network = Dense()
    weights = ParameterTuple(network.trainable_params())
    reduce = DimReduce(network, None, weights, np.ones((2, 43)), 2, 0.55, 0.9, 0.001, 0.4, 0, 1)
    reduce.rank_size, reduce.allreduce, reduce.allgather = 2, lambda loss: 2 * loss, lambda local: local
    _, loss, _ = reduce._generate_gk(weights, Tensor(1.9, ms.float32), weights, Tensor(1.0))
    assert float(loss) == 1.0


def test_dim_reduce_and_loss_scale(
    snapshots: dict[str, object], monkeypatch: pytest.MonkeyPatch, forget: Callable[[], None]
) -> None:
    """The part of the step outside the subspace is multiplied by the loss scale."""
    monkeypatch.setattr(boost_cell_wrapper, "_load_local_pca_mat", lambda *_: np.zeros((2, 43)))  # all is outside
    steps = []
    for scale in (1.0, 1024.0):
        forget()
        ms.set_seed(0)
        network = Dense()
        manager = ms.amp.FixedLossScaleManager(scale, drop_overflow_update=False)
        before = values(network)
        model(network, manual(dim_reduce=snapshots), loss_scale_manager=manager).train_network(ROWS, LABELS)
        steps.append(values(network)[0] - before[0])
    np.testing.assert_allclose(steps[1], 1024 * steps[0], rtol=0.01, atol=1e-4)
    assert np.abs(steps[1]).max() > 0.01


def test_loss_scale_group() -> None:
    """On a CPU `Model` refuses every loss scale that changes, and so loss_scale_group."""
    with pytest.raises(ValueError, match="supported on device `CPU`"):
        model(Dense(), manual(loss_scale_group={}), loss_scale_manager=GroupLossScaleManager(4096, []))


def test_loss_scale_cell() -> None:
    """The step with a loss scale asks an operator of Ascend's whether a gradient has overflowed."""
    network = Dense()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    train = BoostTrainOneStepWithLossScaleCell(nn.WithLossCell(network, loss), optimizer, Tensor(8.0)).set_train()
    with pytest.raises(RuntimeError, match=r"Unsupported op \[NPUGetFloatStatusV2\] on CPU"):
        train(ROWS, LABELS)
