"""Guard and loss scale: what is refused leaves no trace, and the scale moves as its policy says."""

import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from mindspore import Tensor, nn, ops

from msaccel import kernels
from msaccel.checkpoint import weights
from msaccel.step.loss_scaler import LARGEST_NORM, NO_LIMIT, LossScaler, Policy
from tests import reference
from tests.conftest import Job, assert_same_bits
from tests.running import SMALL, Store

pytestmark = pytest.mark.usefixtures("graph_mode")

POLICIES = [
    Policy(),
    Policy(NO_LIMIT),
    Policy(3, 1024.0),
    Policy(3, 1024.0, 2),
    Policy(10, 4.0, 1),
    Policy(NO_LIMIT, 3.0, 5),
]


class Machine(nn.Cell):
    """A guard by itself. Input: a gradient norm. Output: whether it was applied; loss scale and refusals in a row."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.loss_scaler = LossScaler(policy)
        self.fused = kernels.current_backend().library is not None

    def start(self) -> None:
        ops.assign(self.loss_scaler.scale, Tensor(self.loss_scaler.policy.scale, ms.float32))
        ops.assign(self.loss_scaler.bound, Tensor(LARGEST_NORM, ms.float32))
        ops.assign(self.loss_scaler.consecutive_skips, Tensor(0, ms.float32))
        ops.assign(self.loss_scaler.good_updates, Tensor(0, ms.int32))

    def construct(self, norm: Tensor) -> Tensor:
        if self.fused:
            _, outcome = self.loss_scaler.finite_check(norm, norm)
            return ops.stack((outcome[2], self.loss_scaler.scale * 1, outcome[5])).astype(ms.float64)
        finite, _ = self.loss_scaler.check(norm)
        if finite:
            self.loss_scaler.count_applied()
        else:
            self.loss_scaler.count_skipped()
        state = (self.loss_scaler.scale.astype(ms.float64), self.loss_scaler.consecutive_skips.astype(ms.float64))
        return ops.stack((finite.astype(ms.float64), *state))


MACHINES: dict[tuple[str, Policy], Machine] = {}


@dataclass
class Model:
    """The same in Python."""

    policy: Policy
    scale: float = 1.0
    in_a_row: int = 0
    since_it_moved: int = 0

    def __post_init__(self) -> None:
        self.scale = self.policy.scale

    def frozen(self) -> bool:
        return self.in_a_row == self.policy.limit

    def __call__(self, finite: bool) -> bool:
        if self.frozen():
            return False
        self.in_a_row = 0 if finite else self.in_a_row + 1
        if self.policy.growth_interval is not None:
            self.since_it_moved = self.since_it_moved + 1 if finite else 0
            if not finite:
                self.scale = max(self.scale / 2, 1.0)
            elif self.since_it_moved == self.policy.growth_interval:
                self.scale, self.since_it_moved = 2 * self.scale, 0
        return finite


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@given(st.lists(st.sampled_from([0.0, 1.0, 1e30, 1.0, np.nan, np.inf]), max_size=25))
@example([np.nan] * 12 + [1.0] * 3)
@example([1.0] * 12 + [np.inf] * 2 + [1.0] * 7)
@example([1.0, np.nan] * 6)
@hypothesis_settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_state_machine(choice: str, policy: Policy, norms: list[float]) -> None:
    machine, model = MACHINES.setdefault((choice, policy), Machine(policy)), Model(policy)
    machine.start()
    for norm in norms:
        applied, scale, in_a_row = machine(Tensor(norm, ms.float32)).asnumpy()
        assert applied == model(bool(np.isfinite(norm)))
        assert in_a_row == model.in_a_row
        if not model.frozen():
            assert scale == model.scale


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_operator_and_the_graph_agree(graph_mode: None, policy: Policy) -> None:
    """Two implementations, since a branch in the graph costs 60 µs: over random sequences they say the same."""
    said = {}
    norms = np.random.default_rng(0).choice([0.0, 1.0, 1e30, np.nan, np.inf], (5, 25), p=[0.2, 0.3, 0.1, 0.2, 0.2])
    for name in ("onednn", "unfold"):
        kernels.use_backend(kernels.select_backend(name, on_cpu=True))
        machine = MACHINES.setdefault((name, policy), Machine(policy))
        said[name] = []
        for sequence in norms:
            machine.start()
            said[name].append([machine(Tensor(norm, ms.float32)).asnumpy() for norm in sequence])
    np.testing.assert_array_equal(said["onednn"], said["unfold"])


def test_the_order_of_the_signals_is_that_of_the_operator() -> None:
    header = (Path(kernels.__file__).parent / "native" / "signals.h").read_text()
    (names,) = re.findall(r"enum Signal \{([^}]*)\}", header)
    *fields, size = [name.strip().lower() for name in names.split(",")]
    assert tuple(fields) == kernels.Outcome._fields and size == "signals"


def test_the_scale_rests_once_the_limit_is_reached(choice: str) -> None:
    """The sentence that ends the job names it as a scale that did not help."""
    machine = Machine(Policy(2, 1024.0, 1000))
    states = [machine(Tensor(norm, ms.float32)).asnumpy() for norm in (np.inf, np.inf, 1.0, 1.0)]
    assert [scale for _, scale, _ in states] == [512, 256, 256, 256]


def test_the_scale_stays_finite(choice: str) -> None:
    """Beyond float32 it could never come back."""
    machine = Machine(Policy(10, 2.0**126, 1))
    scales = [machine(Tensor(1.0, ms.float32)).asnumpy()[1] for _ in range(4)]
    assert np.isfinite(np.float32(scales)).all()


SCALING = {
    "none": ("train.on_nonfinite=skip",),
    "static": ("loss_scale.mode=static", "loss_scale.init=256"),
    "dynamic": ("loss_scale.mode=dynamic", "loss_scale.init=256", "loss_scale.growth_interval=2"),
}
# What a window is, and on which rank and where in its window the spoilt micro-batch lies.
TOPOLOGIES = {
    "whole": (("accel=none",), 0, 0),
    "accum": (("accel=accum", "accel.accum.steps=3"), 0, 1),
    "ranks": (("device=cpu4",), 3, 0),
    "accum on ranks": (("device=cpu2x2", "accel=accum", "accel.accum.steps=2"), 2, 1),
}


def updates(parts: Job, split, count: int) -> list[list]:
    """The windows of the first full updates."""
    return list(islice(parts.windows(split, 192), count))


@pytest.mark.parametrize(("mode", "topology"), [("dynamic", "whole"), ("dynamic", "accum"), ("static", "ranks")])
def test_a_power_of_two_leaves_no_trace_in_float32(job, tiny, patches, mode, topology) -> None:
    common = ("train.batch_size=8", "optimizer=adam", *TOPOLOGIES[topology][0])
    plain, scaled = (job(*common, *more, network=tiny()) for more in ((), SCALING[mode]))
    for windows in updates(plain, patches, 4):
        expected, found = (each.update(windows, 0.01) for each in (plain, scaled))
        for a, b in zip(expected.measured, found.measured, strict=True):
            np.testing.assert_array_equal(a.asnumpy()[:2], b.asnumpy()[:2], err_msg="loss and hits are unscaled")
        assert expected.outcome.asnumpy()[-6] == found.outcome.asnumpy()[-6], "the norm is unscaled"
    assert_same_bits(scaled.training(), plain.training())


OFTEN = [
    ("fp16", "dynamic", "whole"),
    ("fp32", "dynamic", "accum on ranks"),
    ("fp32", "none", "accum on ranks"),
    ("fp16", "static", "accum on ranks"),
]
EVERY = [(precision, "dynamic", name) for precision in ("fp32", "fp16") for name in TOPOLOGIES]
CASES = [*OFTEN, *(pytest.param(*case, marks=pytest.mark.soak) for case in EVERY if case not in OFTEN)]


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "mode", "topology"), CASES)
def test_an_overflow_is_skipped_as_if_it_had_never_been(job, tiny, patches, precision, mode, topology) -> None:
    """In float16 another scale may round subnormal gradients otherwise; everything else is bit-equal."""
    accel, rank, place = TOPOLOGIES[topology]
    overrides = ("train.batch_size=8", "optimizer=adam", f"precision={precision}", *SCALING[mode], *accel)
    skipping, twin = (job(*overrides, network=tiny()) for _ in range(2))
    scales = []
    for number, windows in enumerate(updates(skipping, patches, 5)):
        before = skipping.training()
        if number == 1:
            windows[rank][place][0][3, 0, 1, 1] = np.inf
        else:
            twin.update(windows, 0.01)
        *_, applied, _, scale, in_a_row = skipping.update(windows, 0.01).outcome.asnumpy()
        scales.append(scale)
        assert (applied, in_a_row) == ((0, 1) if number == 1 else (1, 0))
        if number == 1:
            assert_same_bits(skipping.training(), before)
        else:
            assert any((skipping.training()[name] != before[name]).any() for name in before)
    assert scales == {"none": [1] * 5, "static": [256] * 5, "dynamic": [256, 256, 128, 128, 256]}[mode]
    found, expected = skipping.training(), twin.training()
    if precision == "fp16" and mode == "dynamic":
        assert reference.distance([*found.values()], [*expected.values()]) <= 1e-4
    else:
        assert_same_bits(found, expected)


def test_a_gradient_that_overflows_float16_is_refused_until_the_scale_fits(job, tiny, patches) -> None:
    scaling = ("loss_scale.mode=dynamic", f"loss_scale.init={2.0**22}", "loss_scale.growth_interval=1000")
    parts = job("train.batch_size=8", "precision=fp16", *scaling, network=tiny())
    (windows,) = updates(parts, patches, 1)
    signals = [parts.update(windows, 0.0).outcome.asnumpy() for _ in range(12)]
    applied, scales = [values[-4] for values in signals], [values[-2] for values in signals]
    refused = applied.index(1)
    assert 0 < refused < 10 and applied == [0] * refused + [1] * (12 - refused)
    assert scales == [2.0 ** (22 - min(place, refused)) for place in range(12)]


@pytest.mark.slow
@pytest.mark.parametrize("accel", ["none", "accum"])
def test_float16_follows_float32(job, digits, accel: str) -> None:
    split, losses = digits("lenet").train, {}
    for precision, scaling in (("fp32", "none"), ("fp16", "dynamic")):
        parts = job(f"accel={accel}", "optimizer=adam", f"precision={precision}", f"loss_scale.mode={scaling}")
        signals = [parts.update(windows, 0.003) for windows in islice(parts.windows(split, 640), 20)]
        assert all(each.fetch().applied == 1 for each in signals)
        losses[precision] = [float(np.mean([m.asnumpy()[0] for m in each.measured])) for each in signals]
        for parameter in (*parts.parameters, *(parts.update.accumulator.sums if accel == "accum" else ())):
            assert parameter.dtype in (ms.float32, ms.int32), parameter.name
    np.testing.assert_allclose(losses["fp16"], losses["fp32"], rtol=0.03)
    assert losses["fp32"][-1] < 0.9 * losses["fp32"][0]


STATES = {
    "clip with loss scale": ("accel=clip", *SCALING["dynamic"]),
    "accum+clip with loss scale": ("accel=[accum,clip]", *SCALING["dynamic"]),
    "adasum, momentum": ("device=cpu2x2", "accel=adasum"),
    "adasum, adam": ("device=cpu2x2", "accel=adasum", "optimizer=adam"),
    "adasum, adamw, everything": (
        "device=cpu2x2",
        "accel=[accum,clip,adasum]",
        "accel.accum.steps=2",
        "optimizer=adamw",
        *SCALING["dynamic"],
    ),
}
NAMED = {
    **STATES,
    "adasum of gradients": ("device=cpu2x2", "accel=adasum", "accel.adasum.apply=gradient"),
    "adasum, sgd": ("device=cpu2x2", "accel=adasum", "optimizer=sgd"),
    "adasum, nesterov": ("device=cpu2x2", "accel=adasum", "optimizer.nesterov=true"),
}


@pytest.mark.parametrize("overrides", NAMED.values(), ids=NAMED)
def test_names_of_all_state_differ(job, tiny, overrides) -> None:
    names = [parameter.name for parameter in job(*overrides, network=tiny()).parameters]
    assert len(set(names)) == len(names)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", STATES.values(), ids=STATES)
def test_a_checkpoint_holds_all_that_the_next_update_depends_on(job, tiny, patches, tmp_path: Path, overrides) -> None:
    through, resumed = (job("train.batch_size=4", *overrides, network=tiny(seed)) for seed in (0, 1))
    *first, last = islice(through.windows(patches, 115), 4)
    for windows in first:
        through.update(windows, 0.01)
    weights.write(tmp_path / "last.safetensors", through.parameters, {"update": 3})
    weights.read(tmp_path / "last.safetensors", resumed.parameters)
    assert_same_bits(resumed.state(), through.state())
    signals = [each.update(last, 0.01).outcome.asnumpy() for each in (through, resumed)]
    np.testing.assert_array_equal(*signals)
    assert_same_bits(resumed.state(), through.state())


@pytest.mark.parametrize("overrides", [(), ("device=cpu2x2", "accel=adasum", "optimizer=adam")], ids=["none", "adasum"])
def test_a_checkpoint_takes_an_update_back(job, tiny, patches, tmp_path: Path, overrides) -> None:
    """Also where the graphs have already run with other values."""
    parts, states = job("train.batch_size=4", *overrides, *SCALING["dynamic"], network=tiny()), []
    first, second = islice(parts.windows(patches, 64), 2)
    parts.update(first, 0.01)
    weights.write(tmp_path / "last.safetensors", parts.parameters, {"update": 1})
    for _ in range(2):
        parts.update(second, 0.01)
        states.append(parts.state())
        weights.read(tmp_path / "last.safetensors", parts.parameters)
    assert_same_bits(*states)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


FP16 = ("precision=fp16", "loss_scale.mode=dynamic")


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        (),
        ("device=cpu2x2", "device.simulate=always", "accel=[accum,clip,adasum]", "train.batch_size=2", "model=mlp"),
    ],
)
def test_overflows_without_end_stop_the_job_with_a_sentence(store: Store, more: tuple[str, ...]) -> None:
    """The first update throws the weights away, the next ten are refused; the epoch of 11 ends in a log point."""
    ended = store.run(*SMALL, *FP16, "optimizer.lr=1e12", *more)
    assert ended.returncode == 1
    assert ended.stderr.endswith(
        " s0: the gradients of 10 updates in a row, up to update 11 (epoch 1), were not finite even with the loss "
        "scale down to 2; lower optimizer.lr or loss_scale.init.\n"
    )
    assert len(ended.stderr.splitlines()) == 1
    (run,) = store.runs()
    history = store.history(run)
    assert run.info.status == "FAILED"
    assert history["loss_scale/overflows"] == [(3, 2), (6, 5), (9, 8), (11, 10)]
    assert history["loss_scale/value"] == [(3, 512), (6, 64), (9, 8), (11, 2)]
    assert "nonfinite/updates" not in history
