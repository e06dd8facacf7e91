"""Levels, modes and `Model` of `mindspore.boost`: what a user switches on, and what then happens.

A docstring that begins with "Against the documentation" is a "yes" in `docs/boost.md`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.boost import AutoBoost, FreezeOpt, LessBN, boost

from tests.boost.training import LABELS, ROWS, Dense, manual, model, moved, values

# Fewer graphs to compile than the default of 10.
ONE, THREE = {"param_groups": 1}, {"param_groups": 3}


def test_levels() -> None:
    """O1 is less_bn and grad_freeze, O2 adds adasum, and the other keys are in no level."""
    on = {level: {key for key, on in keys.items() if on} for level, keys in boost._boost_config_level.items()}
    assert on == {"O0": set(), "O1": {"less_bn", "grad_freeze"}, "O2": {"less_bn", "grad_freeze", "adasum"}}
    assert boost._boost_config_level["O0"].keys() - on["O2"] == {"grad_accumulation", "dim_reduce", "loss_scale_group"}


def test_platform() -> None:
    """Against the documentation: O1 trains on a CPU, although the documentation of `AutoBoost` has Ascend alone."""
    platforms = AutoBoost.__doc__.partition("Supported Platforms:\n")[2].split("\n")[0]
    assert platforms.split() == ["``Ascend``"]
    train = model(Dense(), {"grad_freeze": THREE}).train_network
    losses = [float(train(ROWS, LABELS)) for _ in range(5)]
    assert losses[-1] < losses[0]


def test_o2_is_o1_in_one_process(forget: Callable[[], None]) -> None:
    """Without 16 ranks O2 computes what O1 computes, bit for bit."""
    trained = []
    for level in ("O1", "O2"):
        forget()
        ms.set_seed(0)
        network = Dense()
        train = model(network, {"grad_freeze": THREE}, level=level).train_network
        losses = [float(train(ROWS, LABELS)) for _ in range(4)]
        trained.append((losses, [value.tolist() for value in values(network)]))
    assert trained[0] == trained[1]


@pytest.mark.parametrize("config", [manual(), manual(adasum={}), {"boost": {"mode": "disable_all"}}])
def test_loss_is_none(config: dict[str, Any]) -> None:
    """Without freezing `_no_sens_impl` returns nothing, so the loss is None; the weights are trained."""
    network = Dense()
    train = model(network, config).train_network
    before = values(network)
    assert train(ROWS, LABELS) is None
    assert all(moved(network, before))


def test_loss_with_a_loss_scale() -> None:
    """With a fixed loss scale the other branch runs, which does return the loss."""
    scale = ms.amp.FixedLossScaleManager(2.0, drop_overflow_update=False)
    assert float(model(Dense(), manual(), loss_scale_manager=scale).train_network(ROWS, LABELS)) > 0


def test_without_metrics() -> None:
    """Without metrics and evaluation network O1 applies nothing, and the loss is None."""
    train = model(Dense(), metrics=()).train_network
    assert type(train.optimizer) is nn.Momentum
    assert train(ROWS, LABELS) is None


def test_first_configuration_wins() -> None:
    """After a plain `Model` in the same process, O1 applies nothing, and the loss is None."""
    model(Dense(), level="O0")
    train = model(Dense(), level="O1").train_network
    assert AutoBoost().level == "O0"
    assert type(train.optimizer) is nn.Momentum
    assert train(ROWS, LABELS) is None


def test_baseline_after_o1() -> None:
    """After O1 a plain `Model` is given the methods too, and fails at its first update."""
    model(Dense(), {"grad_freeze": ONE})
    baseline = model(Dense(), level="O0").train_network
    assert isinstance(baseline.optimizer, FreezeOpt)
    with pytest.raises(AttributeError, match="'construct' is not defined"):
        baseline(ROWS, LABELS)


def test_manual_changes_the_level(forget: Callable[[], None]) -> None:
    """Mode manual writes into the table of levels, for all later configurations of the process."""
    AutoBoost("O1", manual())
    forget()
    assert not any(AutoBoost("O1").boost_config.values())


def test_auto_ignores_the_switches() -> None:
    """In mode auto, the default, the switches beside it are ignored."""
    switches = {"mode": "auto", "less_bn": False, "grad_freeze": False}
    config = AutoBoost("O1", {"boost": switches}).boost_config
    assert config["less_bn"] and config["grad_freeze"]


def test_manual_needs_a_level() -> None:
    """Against the documentation: in mode manual nothing happens unless boost_level is O1 or O2, too."""
    train = model(Dense(), manual(grad_freeze={}), level="O0").train_network
    assert type(train) is nn.TrainOneStepCell
    assert type(train.optimizer) is nn.Momentum


def test_enable_all(snapshots: dict[str, object], forget: Callable[[], None]) -> None:
    """Against the documentation: enable_all asks for the files of dim_reduce, and then applies that alone."""
    with pytest.raises(ValueError, match="weight_load_dir"):
        model(Dense(), {"boost": {"mode": "enable_all"}})
    forget()
    built = model(Dense(), {"boost": {"mode": "enable_all"}, "dim_reduce": snapshots})
    assert not isinstance(built.predict_network, LessBN)
    assert not isinstance(built.train_network.optimizer, FreezeOpt)
    assert built.train_network.enable_dim_reduce


def test_unknown_level() -> None:
    """`AutoBoost` takes an unknown level for O0; `Model` refuses it."""
    assert AutoBoost("O3").level == "O0"
    with pytest.raises(ValueError, match="boost_level"):
        model(Dense(), level="O3")


def test_unknown_keys(forget: Callable[[], None]) -> None:
    """An unknown key says nothing, and any text counts as true; an unknown mode is an error."""
    switches = {"mode": "manual", "less_bnn": False, "grad_freeze": "no"}
    config = AutoBoost("O1", {"boost": switches, "freeze": {"freeze_p": 0.5}}).boost_config
    assert config["less_bn"] and config["grad_freeze"] and "less_bnn" not in config
    forget()
    with pytest.raises(ValueError, match="boost mode"):
        AutoBoost("O1", {"boost": {"mode": "on"}})


def test_recommended_configuration() -> None:
    """The configuration that the documentation recommends is no Python; it lacks a comma."""
    recommended = AutoBoost.__doc__.partition(".. code-block::\n\n")[2].partition("\n\n")[0].strip()
    assert recommended.startswith("{") and recommended.endswith("}")
    with pytest.raises(SyntaxError, match="comma"):
        ast.literal_eval(recommended)


def test_gradient_split_groups() -> None:
    """Gradient_split_groups lets a number through its check and calls `list` on it."""
    with pytest.raises(TypeError, match="not iterable"):
        AutoBoost("O1", {"common": {"gradient_split_groups": 50}})


@pytest.mark.parametrize("key", ["less_bn", "grad_freeze"])
@pytest.mark.parametrize("optimizer", [nn.Adam, nn.AdamWeightDecay])
def test_adam(optimizer: type[nn.Optimizer], key: str) -> None:
    """Neither method can rebuild `nn.Adam` or `nn.AdamWeightDecay`."""
    network = Dense()
    with pytest.raises((KeyError, AttributeError), match="Adam"):
        model(network, manual(**{key: {}}), optimizer=optimizer(network.trainable_params(), 0.1))


def test_weights_outside_the_optimizer() -> None:
    """Weights that were left out of the optimizer, to keep them as they are, are trained."""
    network = Dense()
    head = nn.Momentum(network.head.trainable_params(), 0.1, 0.9)
    train = model(network, {"grad_freeze": ONE}, optimizer=head).train_network
    before = network.hidden.weight.asnumpy().copy()
    train(ROWS, LABELS)
    assert not np.array_equal(network.hidden.weight.asnumpy(), before)


def test_names(tmp_path: Path) -> None:
    """O1 renames the weights, so a fresh network loads none of them from a checkpoint."""
    network = Dense()
    names = [parameter.name for parameter in Dense().trainable_params()]
    model(network, {"grad_freeze": ONE})
    ms.save_checkpoint(network, str(tmp_path / "o1.ckpt"))
    _, unused = ms.load_param_into_net(Dense(), ms.load_checkpoint(str(tmp_path / "o1.ckpt")))
    assert names == ["hidden.weight", "hidden.bias", "head.weight", "head.bias"]
    assert unused == [
        *("single_opt.network.hidden.weight", "single_opt.network.hidden.bias"),
        *("single_opt.head.weight", "single_opt.head.multiplier"),
    ]
