"""Adasum: the rule against float64, and updates on virtual ranks against the algorithm written down in NumPy."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from mindspore import Parameter, ParameterTuple, Tensor

from msaccel import kernels
from msaccel.config.checks import refusals
from msaccel.kernels import Adasum, AdasumRows, RevertToBase, Subtract
from tests import reference
from tests.conftest import assert_same_bits
from tests.running import soak

pytestmark = pytest.mark.usefixtures("graph_mode")

SHAPES = ((7,), (3, 4), (2, 1, 3))
DECAY, MOMENTUM, BOUND = 0.01, 0.9, 1.0

Arrays = list[np.ndarray]
OfParts = Callable[[int, int], Adasum]  # number of parts, tensors in each → the cell


@pytest.fixture(scope="module", params=["onednn", "unfold"])
def choice(graph_mode: None, request) -> Iterator[str]:
    before = kernels.current_backend()
    kernels.use_backend(kernels.select_backend(request.param, on_cpu=True))
    yield request.param
    kernels.use_backend(before)


@pytest.fixture(scope="module")
def adasum(choice: str) -> OfParts:
    return lru_cache(Adasum)


def found(adasum: OfParts, *parts: Sequence[np.ndarray]) -> Arrays:
    """Adasum in the graph."""
    tensors = [Tensor(g, ms.float32) for part in parts for g in part]
    return [tensor.asnumpy() for tensor in adasum(len(parts), len(parts[0]))(*tensors)]


def assert_adasum(result: Sequence[np.ndarray], *parts: Sequence[np.ndarray]) -> None:
    for i, expected in enumerate(reference.adasum_of(parts)):
        size = sum(reference.norm([part[i]]) for part in parts)
        assert reference.norm([result[i] - expected]) <= 1e-6 * size


def drawn(seed: int, scale: float = 1.0) -> Arrays:
    draw = np.random.default_rng(seed)
    return [(scale * draw.standard_normal(shape)).astype(np.float32) for shape in SHAPES]


def orthogonal(a: Arrays, b: Arrays) -> Arrays:
    """b without its part along a, tensor by tensor."""
    along = [np.sum(x.astype(float) * y) / max(np.sum(x.astype(float) ** 2), 1e-300) for x, y in zip(a, b, strict=True)]
    return [(y - part * x).astype(np.float32) for x, y, part in zip(a, b, along, strict=True)]


RELATIONS = {
    "any": lambda a, b: (a, b),
    "zero": lambda a, b: (a, [0 * x for x in b]),
    "zeros": lambda a, b: ([0 * x for x in a], [0 * x for x in b]),
    "some zero": lambda a, b: ([0 * a[0], *a[1:]], [*b[:2], 0 * b[2]]),
    "orthogonal": lambda a, b: (a, orthogonal(a, b)),
    "equal": lambda a, b: (a, a),
    "parallel": lambda a, b: (a, [np.float32(3) * x for x in a]),
    "opposite": lambda a, b: (a, [-x for x in a]),
    "nearly opposite": lambda a, b: (a, [np.float32(-1.0001) * x for x in a]),
}
exponents = st.floats(-6, 6)


@pytest.mark.parametrize("relation", RELATIONS.values(), ids=RELATIONS)
@given(st.integers(0, 2**31), exponents, exponents)
@hypothesis_settings(max_examples=15, deadline=None, derandomize=True)
def test_a_pair_as_in_float64(adasum: OfParts, relation, seed: int, one: float, other: float) -> None:
    a, b = relation(drawn(seed, 10**one), drawn(seed + 1, 10**other))
    assert_adasum(found(adasum, a, b), a, b)
    assert_adasum(found(adasum, b, a), a, b)


def test_properties_of_a_pair(adasum: OfParts) -> None:
    a, b = drawn(0), drawn(1, 30.0)
    zeros = [np.zeros_like(x) for x in a]
    for exact, parts in ((a, (a, zeros)), (a, (zeros, a)), (a, (a, a)), (zeros, (zeros, zeros))):
        for x, y in zip(found(adasum, *parts), exact, strict=True):
            np.testing.assert_array_equal(x, y)
    for x, y in zip(found(adasum, a, b), found(adasum, b, a), strict=True):
        np.testing.assert_array_equal(x, y, err_msg="symmetric")
    for factor in (np.float32(-2), np.float32(1024)):
        scaled = found(adasum, [factor * x for x in a], [factor * x for x in b])
        for x, y in zip(scaled, found(adasum, a, b), strict=True):
            np.testing.assert_array_equal(x, factor * y, err_msg="homogeneous")
    c = orthogonal(a, b)
    assert reference.distance(found(adasum, a, c), [x + y for x, y in zip(a, c, strict=True)]) <= 1e-6
    assert reference.distance(found(adasum, a, [3 * x for x in a]), [2 * x for x in a]) <= 1e-6


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_dot_products_have_the_range_of_float64(adasum: OfParts, size: float) -> None:
    """The squares of such values are 0 or infinite in float32."""
    a, b = drawn(0, size), [x + y for x, y in zip(drawn(0, size), drawn(1, size / 2), strict=True)]
    assert_adasum(found(adasum, a, b), a, b)
    rows = np.stack([np.concatenate([tensor.ravel() for tensor in part]) for part in (a, b)])
    row = AdasumRows([tensor.size for tensor in a])(Tensor(rows)).asnumpy()
    assert_adasum(
        np.split(row, np.cumsum([tensor.size for tensor in a])[:-1]), *[[x.ravel() for x in p] for p in (a, b)]
    )


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_parts_by_contiguous_halves_in_their_order(adasum: OfParts, count: int) -> None:
    common = drawn(100)
    parts = [[x + y for x, y in zip(common, drawn(seed, 0.5 + seed), strict=True)] for seed in range(count)]
    result = found(adasum, *parts)
    assert_adasum(result, *parts)
    if count > 2:
        assert reference.distance(result, reference.adasum_of([*parts[::2], *parts[1::2]])) >= 1e-2
    same = found(adasum, *[common] * count)
    assert reference.distance(same, common) <= 1e-6


LARGE = ((3, 70_000), (5,), (1,), (66_000,))  # over several pieces that threads share out


def test_rows_of_large_tensors_as_tensors(adasum: OfParts) -> None:
    draw = np.random.default_rng(0).standard_normal
    a, b = ([(1 + draw(shape)).astype(np.float32) for shape in LARGE] for _ in range(2))
    combined = found(adasum, a, b)
    assert_adasum(combined, a, b)
    rows = np.stack([np.concatenate([tensor.ravel() for tensor in part]) for part in (a, b)])
    row = AdasumRows([tensor.size for tensor in a])(Tensor(rows)).asnumpy()
    assert reference.distance([row], [np.concatenate([tensor.ravel() for tensor in combined])]) <= 1e-7


def test_a_step_is_taken_back_and_the_common_one_made(choice: str) -> None:
    draw = np.random.default_rng(0).standard_normal
    old, new, step = ([draw(shape).astype(np.float32) for shape in LARGE] for _ in range(3))
    weights, bases = (
        ParameterTuple([Parameter(Tensor(x), name=f"{name}{i}") for i, x in enumerate(values)])
        for name, values in (("weight", new), ("base", old))
    )
    differences = RevertToBase(weights, bases)(Tensor(0.0))
    for i, (base, weight) in enumerate(zip(old, new, strict=True)):
        np.testing.assert_array_equal(differences[i].asnumpy(), base - weight)
        np.testing.assert_array_equal(weights[i].asnumpy(), base)
    Subtract(ParameterTuple([*weights, *bases]))(tuple(map(Tensor, [*step, *step])))
    for i, (base, difference) in enumerate(zip(old, step, strict=True)):
        np.testing.assert_array_equal(weights[i].asnumpy(), base - difference)
        np.testing.assert_array_equal(bases[i].asnumpy(), base - difference)


# Of 4 samples each; the last window of an epoch has 5 samples, so that parts are left without.
TOPOLOGIES = {
    "2 servers of 2": (("device=cpu2x2",), [[0, 1], [2, 3]]),
    "4 servers of 2": (("device=cpu2x2", "device.servers=4"), [[0, 1], [2, 3], [4, 5], [6, 7]]),
    "4 ranks": (("device=cpu4", "accel.adasum.scope=rank"), [[0], [1], [2], [3]]),
    "4 ranks of 2 servers": (("device=cpu2x2", "accel.adasum.scope=rank"), [[0], [1], [2], [3]]),
}
CASES = [
    ("delta", "2 servers of 2", "accum,clip"),
    ("delta", "4 ranks", ""),
    ("gradient", "2 servers of 2", "accum,clip"),
    *(
        pytest.param(*case, marks=pytest.mark.soak)
        for case in (
            ("delta", "4 ranks", "accum,clip"),
            ("delta", "4 servers of 2", "clip"),
            ("gradient", "4 ranks", ""),
            ("delta", "2 servers of 2", ""),
            ("delta", "4 ranks of 2 servers", ""),
        )
    ),
]


class Simulation:
    """Both modes in float64; `moved` is the sum of the norms of all that was combined."""

    def __init__(self, weights: Arrays, parts: list[list[int]], delta: bool, clip: bool) -> None:
        self.weights = [np.asarray(w, float) for w in weights]
        self.parts, self.delta, self.clip, self.moved = parts, delta, clip, 0.0
        self.velocities = [[np.zeros_like(w) for w in self.weights] for _ in (parts if delta else [0])]
        self.norms: list[float] = []

    def step(self, part: int, gradients: Arrays, rate: float) -> Arrays:
        """The step of one optimizer."""
        if self.clip:
            gradients = reference.clip(gradients, BOUND)
        velocities = self.velocities[part]
        for i, gradient in enumerate(gradients):
            velocities[i] = MOMENTUM * velocities[i] + gradient + DECAY * self.weights[i]
        return [rate * velocity for velocity in velocities]

    def update(self, ranks, rate: float) -> None:
        zeros = [np.zeros_like(w) for w in self.weights]
        combined, self.norms = [], []
        for part, members in enumerate(self.parts):
            window = [micro_batch for rank in members for micro_batch in ranks[rank]]
            if window:
                samples = (np.concatenate(arrays) for arrays in zip(*window, strict=True))
                gradients = reference.mlp_gradients(self.weights, *samples)
                self.norms.append(reference.norm(gradients))
                combined.append(self.step(part, gradients, rate) if self.delta else gradients)
            else:
                combined.append(zeros)
        self.moved += sum(map(reference.norm, combined)) * (1.0 if self.delta else rate)
        step = reference.adasum_of(combined)
        if not self.delta:
            self.norms = [reference.norm(step)]
            step = self.step(0, step, rate)
        self.weights = [w - s for w, s in zip(self.weights, step, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(("apply", "topology", "more"), CASES)
def test_updates_follow_the_algorithm(job, tiny, patches, apply: str, topology: str, more: str) -> None:
    device, parts = TOPOLOGIES[topology]
    methods = f"accel=[{','.join(['adasum', *filter(None, more.split(','))])}]"
    overrides = [methods, f"accel.adasum.apply={apply}", "train.batch_size=4", f"optimizer.weight_decay={DECAY}"]
    if "accum" in more:
        overrides.append("accel.accum.steps=2")
    if "clip" in more:
        overrides.append(f"accel.clip.max_norm={BOUND}")
    trained = job(*overrides, *device, network=tiny(size=0.3))
    simulation = Simulation(trained.weights(), parts, apply == "delta", "clip" in more)
    batch = 4 * sum(map(len, parts)) * (2 if "accum" in more else 1)
    clipped: list[float] = []
    for number, ranks in enumerate(islice(trained.windows(patches, 2 * batch + 5), 8)):
        rate = (0.3, 0.2, 0.4, 0.1)[number % 4]
        signals = trained.update(ranks, rate)
        simulation.update(ranks, rate)
        error = reference.norm([a - b for a, b in zip(trained.weights(), simulation.weights, strict=True)])
        assert error <= 1e-6 * simulation.moved, f"update {number}"
        norm, largest, applied, share, _, skips = signals.outcome.asnumpy()
        assert (applied, skips) == (1, 0)
        assert sum(signals.samples) == sum(len(labels) for window in ranks for _, labels in window)
        assert largest == pytest.approx(max(simulation.norms), rel=1e-5)
        if number % 3 < 2:
            assert norm == pytest.approx(np.mean(simulation.norms), rel=1e-5)
            assert share == np.mean([norm > BOUND for norm in simulation.norms]) * ("clip" in more)
            clipped.append(share)
        elif apply == "delta":
            assert len(simulation.norms) < len(parts), "a part without samples"
    assert np.mean(clipped) > 0 or "clip" not in more


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", *soak("momentum", "adamw")])
def test_equal_parts_train_as_one(job, tiny, patches, optimizer: str) -> None:
    common = (f"optimizer={optimizer}", f"optimizer.weight_decay={DECAY}")
    parts = job("device=cpu2x2", "accel=adasum", "train.batch_size=4", *common, network=tiny())
    alone = job("train.batch_size=8", *common, network=tiny())
    for first in range(0, 40, 8):
        halves = [[patches.batch(np.arange(first + half, first + half + 4))] for half in (0, 4)]
        parts.update([*halves, *halves], 0.05)
        alone.update([[patches.batch(np.arange(first, first + 8))]], 0.05)
    assert reference.distance(parts.weights(), alone.weights()) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("model", "rate"), [("tiny", 0.05), pytest.param("lenet", 0.01, marks=pytest.mark.soak)])
def test_windows_on_ranks_are_big_batches_on_ranks(job, tiny, patches, digits, model: str, rate: float) -> None:
    """115 samples: 3 full windows of 4 × 8 an epoch, then one that leaves the last rank less than the others."""
    real, common = model == "lenet", ("device=cpu4", "accel.adasum.scope=rank", "optimizer.weight_decay=5e-4")
    ways = (
        ("accel=[accum,adasum]", "accel.accum.steps=2", "train.batch_size=4"),
        ("accel=adasum", "train.batch_size=8"),
    )
    window, big = (job(*way, *common, network=None if real else tiny()) for way in ways)
    before = big.weights()
    for each in (window, big):
        for ranks in islice(each.windows(digits("lenet").train if real else patches, 115), 20):
            each.update(ranks, rate)
    assert reference.distance(window.weights(), big.weights()) <= 1e-5
    assert reference.distance(before, big.weights()) >= 1e-3


SCALING = {"skip": ("train.on_nonfinite=skip",), "dynamic": ("loss_scale.mode=dynamic", "loss_scale.init=256")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("apply", "optimizer", "mode"),
    [("delta", "adam", "dynamic"), ("delta", "momentum", "skip"), ("gradient", "adam", "dynamic")],
)
def test_one_part_that_overflows_stops_all(job, tiny, patches, apply: str, optimizer: str, mode: str) -> None:
    common = ("device=cpu2x2", "accel=[accum,adasum]", "accel.accum.steps=2", "train.batch_size=4", *SCALING[mode])
    trained, twin = (
        job(*common, f"accel.adasum.apply={apply}", f"optimizer={optimizer}", network=tiny()) for _ in range(2)
    )
    for number, ranks in enumerate(islice(trained.windows(patches, 128), 5)):
        before = trained.training()
        if number in (1, 3):
            ranks[number][1][0][2, 0, 1, 1] = np.inf
        else:
            twin.update(ranks, 0.05)
        applied, share, scale, skips = trained.update(ranks, 0.05).outcome.asnumpy()[-4:]
        assert (applied, skips, share) == ((0, 1, 0) if number in (1, 3) else (1, 0, 0))
        assert scale == (1 if mode == "skip" else 256 / 2 ** (number // 2))
        if number in (1, 3):
            assert_same_bits(trained.training(), before)
    assert_same_bits(trained.training(), twin.training())


@pytest.mark.slow
@pytest.mark.parametrize(("apply", "optimizer"), [("delta", "momentum"), ("delta", "lion"), ("gradient", "momentum")])
def test_nothing_is_left_to_compile_after_compiling(job, tiny, patches, apply: str, optimizer: str) -> None:
    parts = job(
        "device=cpu2x2",
        "accel=[adasum,clip]",
        f"accel.adasum.apply={apply}",
        f"optimizer={optimizer}",
        "train.batch_size=4",
        network=tiny(),
    )
    before, update = parts.state(), parts.update
    update.compile(*patches.batch(np.arange(4)))
    assert_same_bits(parts.state(), before)
    finish = update.finish
    in_turn = [] if hasattr(finish, "compile_cache") else [*vars(finish).values(), *finish.steps]
    cells = [value for value in [*vars(update).values(), *in_turn] if hasattr(value, "compile_cache")]
    compiled = [len(cell.compile_cache) for cell in cells]
    parts.update(next(parts.windows(patches, 16)), 0.05)
    assert [len(cell.compile_cache) for cell in cells] == compiled and sum(compiled) > 0


REFUSED = {
    "3 ranks": (
        ("device=cpu4", "device.ranks_per_server=3", "accel.adasum.scope=rank"),
        "accel=adasum combines a power of two of parts and device=cpu4 has 3; "
        "write device.servers or device.ranks_per_server so that it does.",
    ),
    "6 servers": (
        ("device=cpu2x2", "device.servers=6"),
        "accel=adasum combines a power of two of parts and device=cpu2x2 has 6; "
        "write device.servers or device.ranks_per_server so that it does.",
    ),
    "one server": (
        ("device=cpu4",),
        "accel.adasum.scope=server has one part on the single server of device=cpu4 and would only average; "
        "write accel.adasum.scope=rank or a device with more servers, such as device=ascend16.",
    ),
    "one rank": (
        ("device=cpu",),
        "accel=adasum needs at least two parts and device=cpu has one rank; write a device with more, "
        "such as device=ascend16, or device=cpu4 accel.adasum.scope=rank.",
    ),
    "one rank of its own scope": (
        ("device=cpu", "accel.adasum.scope=rank"),
        "accel=adasum needs at least two parts and device=cpu has one rank; write a device with more, "
        "such as device=ascend16, or device=cpu4 accel.adasum.scope=rank.",
    ),
}


@pytest.mark.parametrize("apply", ["delta", "gradient"])
@pytest.mark.parametrize(("overrides", "sentence"), REFUSED.values(), ids=REFUSED)
def test_refused_topologies(composed, overrides: tuple[str, ...], sentence: str, apply: str) -> None:
    assert refusals(composed("accel=adasum", f"accel.adasum.apply={apply}", *overrides)) == [sentence]


@pytest.mark.parametrize(
    "overrides",
    [
        ("device=ascend16",),
        ("device=ascend16", "accel.adasum.scope=rank"),
        ("device=cpu4", "accel.adasum.scope=rank"),
        ("device=cpu2x2",),
        ("device=cpu2x2", "device.ranks_per_server=3"),
    ],
)
def test_accepted_topologies(composed, overrides: tuple[str, ...]) -> None:
    assert refusals(composed("accel=adasum", *overrides)) == []
