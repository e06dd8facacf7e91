"""Frozen layers keep every bit while the others train as float64 says, over windows, ranks, SAM and loss scales."""

import re
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from mindspore import nn
from mindspore.boost import GradientFreeze
from mindspore.graph.api import _cell_graph_executor

from msaccel import models
from msaccel.accel.freeze.schedules import Draws, Ramp
from msaccel.checkpoint.state import set_values
from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.errors import ConfigError
from msaccel.step.batch_norm import RunningStatistics
from msaccel.step.layers import layers_of
from msaccel.training.builder import Builder
from tests import reference
from tests.conftest import assert_same_bits

pytestmark = pytest.mark.usefixtures("graph_mode")

RATE, DECAY, UPDATES = 0.1, 0.01, 20
COMMON = ("data=synthetic", "tracking.uri=sqlite:///none")
MOMENTUM = ("optimizer=momentum", f"optimizer.weight_decay={DECAY}")
RAMP = ("accel.freeze.start=0.3", "accel.freeze.share=0.5", "accel.freeze.steps=2")
DEPTHS = [0] * 6 + [1] * 7 + [2] * 7  # of four layers


def deep() -> nn.Cell:
    """Four dense layers, 12-8-8-8-4 with ReLU, for the images of `patches`."""
    draw = np.random.default_rng(1).normal
    network = nn.SequentialCell(
        nn.Flatten(), nn.Dense(12, 8), nn.ReLU(), nn.Dense(8, 8), nn.ReLU(), nn.Dense(8, 8), nn.ReLU(), nn.Dense(8, 4)
    )
    for parameter in network.trainable_params():
        parameter.set_data(ms.Tensor(draw(0, 0.5, parameter.shape).astype(np.float32)))
    return network


def train(job: Callable, patches: object, *overrides: str, updates: int = UPDATES) -> tuple[list, list, list]:
    """The state after each of 20 updates and before, the samples of each, and their outcomes."""
    parts = job(*COMMON, *overrides, network=deep())
    windows, states, batches, outcomes = parts.windows(patches, 96), [parts.training()], [], []
    for done in range(updates):
        ranks = next(windows)
        outcomes.append(parts.update.at(done, UPDATES)(ranks, RATE).fetch())
        states.append(parts.training())
        batches.append([np.concatenate(arrays) for arrays in zip(*(b for rank in ranks for b in rank), strict=True)])
    return states, batches, outcomes


def of_layers(state: dict[str, np.ndarray], first: int, last: int) -> dict[str, np.ndarray]:
    """Weights and momenta of the dense layers with these numbers, the last one excluded."""
    cells = [str(2 * number + 1) for number in range(first, last)]
    return {name: value for name, value in state.items() if name.split(".")[-2:-1] in [[cell] for cell in cells]}


def weights_of(state: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [state[f"{cell}.{kind}"] for cell in (1, 3, 5, 7) for kind in ("weight", "bias")]


def in_float64(weights: list, batches: list, max_norm: float = np.inf, rho: float = 0.0) -> tuple[list, list]:
    """Momentum of the layers that are trained; the weights after all updates, and the gradient norm of each."""
    weights, norms = [np.asarray(w, float) for w in weights], []
    velocity = [np.zeros_like(w) for w in weights]
    for frozen, (images, labels) in zip(DEPTHS, batches, strict=True):
        first = 2 * frozen  # a weight and a bias each
        gradients = reference.mlp_gradients(weights, images, labels)[first:]
        if rho:
            share = rho / reference.norm(gradients)
            moved = [w + share * g for w, g in zip(weights[first:], gradients, strict=True)]
            gradients = reference.mlp_gradients(weights[:first] + moved, images, labels)[first:]
        norms.append(reference.norm(gradients))
        for i, gradient in enumerate(reference.clip(gradients, max_norm) if max_norm < np.inf else gradients, first):
            velocity[i] = 0.9 * velocity[i] + gradient + DECAY * weights[i]
            weights[i] = weights[i] - RATE * velocity[i]
    return weights, norms


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "more"),
    [
        (("accel=[freeze,clip]", "accel.clip.max_norm=0.3", "train.batch_size=32"), {"max_norm": 0.3}),
        (("accel=[freeze,accum]", "accel.accum.steps=4", "train.batch_size=8"), {}),
        (
            ("accel=[freeze,accum,clip]", "accel.accum.steps=2", "accel.clip.max_norm=0.3", "device=cpu4",
             "device.ranks_per_server=2", "train.batch_size=8"), {"max_norm": 0.3},
        ),
        (("accel=[freeze,sam]", "accel.sam.rho=0.3", "device=cpu4", "train.batch_size=8"), {"rho": 0.3}),
    ],
    ids=["clip", "window", "clip of windows on ranks", "sam on ranks"],
)  # fmt: skip
def test_frozen_layers_keep_their_bits_and_the_others_train(job, patches, overrides, more) -> None:
    states, batches, outcomes = train(job, patches, *MOMENTUM, *RAMP, *overrides)
    for frozen, before, after in zip(DEPTHS, states, states[1:], strict=False):
        assert_same_bits(of_layers(after, 0, frozen), of_layers(before, 0, frozen))
        moved = of_layers(after, frozen, 4)
        assert not any(np.array_equal(moved[name], before[name]) for name in moved)
    expected, norms = in_float64(weights_of(states[0]), batches, **more)
    assert reference.distance(weights_of(states[-1]), expected) < 1e-5
    np.testing.assert_allclose([outcome.norm for outcome in outcomes], norms, rtol=1e-3)
    if "max_norm" in more:
        assert [outcome.clipped for outcome in outcomes] == [float(norm > 0.3) for norm in norms]
        assert sum(outcome.clipped for outcome in outcomes) > 0


SELDOM = ("adam", "adamw", "sgd", "momentum optimizer.nesterov=true", "lars", "lion", "shampoo optimizer.interval=3")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "optimizer"),
    [
        ("onednn", "momentum"),
        ("onednn", "lamb"),
        ("unfold", "adam"),
        *(pytest.param("onednn", name, marks=pytest.mark.soak) for name in SELDOM),
    ],
    indirect=["choice"],
)
def test_every_optimizer_trains_the_rest_as_if_nothing_else_were_there(choice, job, patches, optimizer) -> None:
    """Frozen from the first update on, a network is one in which the frozen layers are not trainable at all."""
    keys = (*f"optimizer={optimizer}".split(), f"optimizer.weight_decay={DECAY}", "train.batch_size=32")
    overrides = (*COMMON, *keys)
    ramp = ("accel=freeze", "accel.freeze.start=0", "accel.freeze.share=0.5", "accel.freeze.steps=1")
    states = []
    for own in (ramp, ("accel=none",)):
        network = deep()
        for parameter in network.trainable_params()[:4]:
            parameter.requires_grad = own is ramp
        parts = job(*overrides, *own, network=network)
        windows, start = parts.windows(patches, 96), parts.training()
        for done in range(8):
            parts.update.at(done, 8)(next(windows), 0.01)
        states.append(parts.training())
    frozen, smaller = states
    assert_same_bits({name: frozen[name] for name in smaller}, smaller)
    assert_same_bits(of_layers(frozen, 0, 2), of_layers(job(*overrides, *ramp, network=deep()).training(), 0, 2))
    assert not any(np.array_equal(frozen[name], start[name]) for name in ("5.weight", "7.weight"))


def test_the_backward_pass_ends_where_it_should(job) -> None:
    """Counted in the compiled graphs: the gradients of LeNet's convolutions, from their operators."""
    parts = job(*COMMON, "model=lenet", "accel=freeze", "accel.freeze.start=0", "accel.freeze.share=0.8")
    images, labels = np.zeros((4, 1, 32, 32), np.float32), np.zeros(4, np.int32)
    found = []
    for frozen in range(4):
        update = parts.update.without(frozen)
        update([[(images, labels)]], RATE)
        proto = _cell_graph_executor._graph_executor.get_optimize_graph_proto(update.single_batch.current_phase)
        names = [name.decode() for name in re.findall(rb"msaccel_\w+?_gradient", proto)]
        kinds = ("convolution_weight", "convolution_input", "dense_weight", "dense_input")
        found.append(tuple(names.count(f"msaccel_{kind}_gradient") for kind in kinds))
    each = [max(counts) for counts in zip(*found, strict=True)]
    assert all(each), "the operators have these names"
    assert found[0] == tuple(each)
    two, _, three, twice = each  # of two convolutions and three dense layers; the first has no input gradient
    assert found[1] == (two // 2, 0, three, twice)
    assert found[2] == (0, 0, three, twice * 2 // 3)
    assert found[3] == (0, 0, three * 2 // 3, twice // 3)


def test_a_loss_scale_is_that_of_all_depths(job, patches) -> None:
    scaled = ("precision=fp16", "loss_scale.mode=dynamic", "loss_scale.init=1e30", "loss_scale.max_consecutive=1000")
    parts = job(*COMMON, *MOMENTUM, *RAMP, *scaled, "accel=freeze", "train.batch_size=32", network=deep())
    windows, before = parts.windows(patches, 96), parts.training()
    for halved, done in enumerate((0, 8, 15, 1)):  # a depth each, and the first one again
        refused = parts.update.at(done, UPDATES)(next(windows), RATE).fetch()
        assert (refused.applied, refused.consecutive_skips) == (0, halved + 1)
        assert refused.loss_scale == pytest.approx(1e30 / 2**halved)
    assert_same_bits(of_layers(parts.training(), 0, 4), of_layers(before, 0, 4))
    set_values([parts.update.loss_scaler.scale], {"guard.scale": np.array(64, np.float32)})
    outcome = parts.update.at(15, UPDATES)(next(windows), RATE).fetch()
    assert (outcome.applied, outcome.loss_scale, outcome.consecutive_skips) == (1, 64, 0)
    assert_same_bits(of_layers(parts.training(), 0, 2), of_layers(before, 0, 2))
    assert not np.array_equal(parts.training()["7.weight"], before["7.weight"])


def test_statistics_of_frozen_layers_move_with_their_inputs(job, digits) -> None:
    def network() -> nn.Cell:
        return nn.SequentialCell(nn.Flatten(), nn.Dense(784, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dense(16, 10))

    keys = ("model=mlp", "accel=freeze", "accel.freeze.start=0", "accel.freeze.steps=1", "train.batch_size=32")
    parts = job(*COMMON, *MOMENTUM, *keys, network=network())
    before = parts.state()
    parts.update.at(0, 8)(next(parts.windows(digits("mlp").train, 96)), RATE)
    after = parts.state()
    assert {name for name in before if not np.array_equal(before[name], after[name])} >= {
        "2.moving_mean", "2.moving_variance", "4.weight", "4.bias",
    }  # fmt: skip
    frozen = ("1.weight", "1.bias", "2.gamma", "2.beta")
    assert_same_bits({name: after[name] for name in frozen}, {name: before[name] for name in frozen})


def names_of(model: str, composed: Callable, *overrides: str) -> list[list[str]]:
    network = models.build(composed(f"model={model}", "data=synthetic", *overrides).model)
    layers = layers_of(network)
    found = [weight.name for layer in layers for weight in layer]
    assert sorted(found) == sorted(weight.name for weight in network.trainable_params()), "each once"
    return [[weight.name for weight in layer] for layer in layers]


def test_layers_are_convolutions_and_dense_layers_with_their_norms(composed) -> None:
    assert [layer[0] for layer in names_of("lenet", composed, "model.classes=10")] == [
        "conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight", "fc3.weight",
    ]  # fmt: skip
    small = ("model.depth=20", "model.image_size=32", "model.classes=10")
    residual = names_of("resnet50", composed, *small)
    assert len(residual) == 22 and residual[0] == ["stem.conv.weight", "stem.norm.gamma", "stem.norm.beta"]
    assert residual[-1] == ["head.weight", "head.bias"]
    tied = names_of("gpt", composed, "data=shakespeare", "model.classes=65")
    assert tied[0] == ["positions", "blocks.0.norm1.gamma", "blocks.0.norm2.gamma"]
    assert tied[-1] == ["embedding"], "which is the last layer's weight, too"


@given(
    start=st.sampled_from([0, 0.1, 0.3, 0.5, 0.7, 0.9]),
    share=st.floats(0.1, 0.99),
    steps=st.integers(1, 6),
    layers=st.integers(2, 40),
    updates=st.integers(1, 400),
)
@hypothesis_settings(max_examples=60, deadline=None, derandomize=True)
def test_the_ramp_climbs_to_its_share(start, share, steps, layers, updates) -> None:
    ramp = Ramp(start, share, steps, layers)
    assume(share * layers >= 1 and (1 - start) * updates >= steps)
    frozen = [ramp(done, updates) for done in range(updates)]
    assert frozen == sorted(frozen) and frozen[-1] < layers
    assert not any(frozen[: int(start * updates)])
    assert len({*frozen} - {0}) <= steps
    assert frozen[-1] == int(share * layers + 1e-6)


def test_the_ramp_has_steps_of_equal_length() -> None:
    frozen = [Ramp(0.5, 0.5, 4, 22)(done, 80) for done in range(80)]
    assert frozen == [0] * 40 + [2] * 10 + [5] * 10 + [8] * 10 + [11] * 10
    assert [Ramp(0.3, 0.5, 2, 4)(done, UPDATES) for done in range(UPDATES)] == DEPTHS


def test_a_job_too_short_to_freeze_is_refused_from_its_first_update_on() -> None:
    with pytest.raises(ConfigError, match=r"freezes nothing in a job of 3 updates; write accel.freeze.start=0 "):
        Ramp(0.9, 0.5, 4, 4)(0, 3)
    assert Ramp(0, 0.5, 1, 4)(2, 3) == 2


@pytest.mark.parametrize("whole", [0.5, 0.7, 0.9])
def test_what_is_drawn_is_what_boost_draws(whole) -> None:
    np.random.seed(0)
    theirs = np.array(GradientFreeze(10, 1, whole, 20000).generate_freeze_index_sequence(10, 1, whole, 20000))
    ours = np.array([Draws(whole, 3, 10)(done, 0) for done in range(20000)])
    assert ours[0] == theirs[0] == 0
    assert np.mean(ours == 0) == pytest.approx(np.mean(theirs == 0), abs=1e-4)
    gaps = [set(np.diff(np.flatnonzero(sequence))) for sequence in (ours, theirs)]
    assert gaps[0] == gaps[1], "as evenly spread"
    for group in range(1, 10):
        assert np.mean(ours == group) == pytest.approx(np.mean(theirs == group), abs=0.01)
    other = [Draws(whole, 4, 10)(done, 0) for done in range(200)]
    assert other != ours[:200].tolist() == [Draws(whole, 3, 10)(done, 9) for done in range(200)]


def test_drawn_layers_thaw_again(job, patches) -> None:
    """With one optimizer: momentum and weights of a layer go on from where they were."""
    states, batches, _ = train(job, patches, *MOMENTUM, "accel=freeze", "accel.freeze.form=boost",
                               "accel.freeze.whole=0", "train.batch_size=32")  # fmt: skip
    depths = [Draws(0, 0, 4)(done, UPDATES) for done in range(UPDATES)]
    assert {0, 1, 2, 3} == {*depths} and depths != sorted(depths)
    weights = [w.astype(float) for w in weights_of(states[0])]
    velocity = [np.zeros_like(w) for w in weights]
    for frozen, before, after, (images, labels) in zip(depths, states, states[1:], batches, strict=False):
        assert_same_bits(of_layers(after, 0, frozen), of_layers(before, 0, frozen))
        for i, gradient in list(enumerate(reference.mlp_gradients(weights, images, labels)))[2 * frozen :]:
            velocity[i] = 0.9 * velocity[i] + gradient + DECAY * weights[i]
            weights[i] = weights[i] - RATE * velocity[i]
    assert reference.distance(weights_of(states[-1]), weights) < 1e-5


def test_shampoo_needs_no_matrix_in_the_layers_that_are_left(job, digits) -> None:
    """Where no axis of theirs is short enough for a preconditioner, they take AdamW's steps."""
    most = ("accel=freeze", "accel.freeze.start=0", "accel.freeze.share=0.8", "accel.freeze.steps=1")
    keys = (*COMMON, "model=lenet", *most, "train.batch_size=32", "optimizer.weight_decay=0.01")
    after = []
    for optimizer in (("optimizer=shampoo", "optimizer.max_size=8", "optimizer.interval=1"), ("optimizer=adamw",)):
        parts = job(*keys, *optimizer)
        windows = parts.windows(digits("lenet").train, 96)
        for done in range(3):
            parts.update.at(done, 3)(next(windows), 0.01)
        after.append({weight.name: weight.asnumpy() for weight in parts.network.trainable_params()})
    shampoo, adamw = after
    for name in adamw:
        np.testing.assert_allclose(shampoo[name], adamw[name], atol=1e-6, err_msg=name)


def test_a_depth_is_built_when_it_is_compiled(job, patches) -> None:
    """The loop asks for the update with its clock running, and compiles with the clock stopped."""
    parts = job(*COMMON, *MOMENTUM, *RAMP, "accel=freeze", network=deep())
    update = parts.update.at(6, UPDATES)
    assert update is parts.update.at(7, UPDATES) and list(parts.update.updates) == [0]
    update.compile(*next(parts.windows(patches, 96))[0][0])
    assert list(parts.update.updates) == [0, 1]


def test_how_many_are_frozen_is_reported(job, patches) -> None:
    parts = job(*COMMON, *MOMENTUM, *RAMP, "accel=freeze", network=deep())
    for done in (5, 6, 12, 13):
        parts.update.at(done, UPDATES)
    assert parts.update.report() == {"frozen/layers": 1.0}
    assert parts.update.report() == {}


@pytest.mark.parametrize(
    ("network", "key", "sentence"),
    [
        (deep, "accel.freeze.share=0.2", "accel.freeze.share=0.2 is less than one of the network's 4 layers; "
         "write accel.freeze.share=0.25 or more."),
        (lambda: nn.SequentialCell(nn.Flatten(), nn.Dense(12, 4)), "accel.freeze.share=0.9", "of one layer"),
    ],
)  # fmt: skip
def test_a_network_with_nothing_to_freeze_is_refused(composed, network, key, sentence) -> None:
    cell, config = network(), composed(*COMMON, "accel=freeze", key)
    builder = Builder(cell, config, SINGLE_PROCESS, RunningStatistics(cell, [0], SINGLE_PROCESS), Path())
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        builder.update(8)
