"""Dense layers, the loss, multi-tensor operations and the blocked layout, against float64 and NumPy."""

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mindspore import Parameter, Tensor, nn, ops

from msaccel import kernels
from msaccel.kernels import Adam, CrossEntropy, Dense, GlobalNorm, Momentum, Scale
from msaccel.kernels.backend import native_operators
from msaccel.kernels.conv_shape import Geometry
from msaccel.kernels.norm import BatchNormTraining
from tests.kernels import operators
from tests.kernels.operators import blocks, call
from tests.reference import distance

pytestmark = pytest.mark.usefixtures("graph_mode")
sizes = st.integers(1, 70)
seeds = st.integers(0, 2**32)


def empty(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(batch=sizes, inputs=sizes, outputs=sizes, relu=st.booleans(), seed=seeds)
@example(batch=32, inputs=784, outputs=512, relu=True, seed=0)  # on several threads
@example(batch=1, inputs=1, outputs=1, relu=False, seed=0)
def test_dense_and_its_gradients(batch: int, inputs: int, outputs: int, relu: bool, seed: int) -> None:
    draw = np.random.default_rng(seed).standard_normal
    shapes = (batch, inputs), (outputs, inputs), (outputs,), (batch, outputs)
    x, weight, bias, dy = (draw(shape).astype(np.float32) for shape in shapes)
    behind = np.array([relu, 0], np.int32)
    y, dx, dweight, dbias = empty(batch, outputs), empty(*x.shape), empty(*weight.shape), empty(outputs)
    call("dense", x, weight, bias, behind, y)
    call("dense_input_gradient", dy, y, weight, x, behind, dx)
    call("dense_weight_gradient", dy, y, x, weight, behind, dweight, dbias)
    wide = [tensor.astype(float) for tensor in (x, weight, bias)]
    value = wide[0] @ wide[1].T + wide[2]
    g = np.where(relu & (y == 0), 0, dy).astype(float)  # at the bend rounding decides, so by our y
    np.testing.assert_allclose(y, np.maximum(value, 0) if relu else value, atol=1e-5 * inputs**0.5, rtol=1e-5)
    np.testing.assert_allclose(dx, g @ wide[1], atol=1e-5 * outputs**0.5, rtol=1e-5)
    np.testing.assert_allclose(dweight, g.T @ wide[0], atol=1e-5 * batch**0.5, rtol=1e-5)
    np.testing.assert_allclose(dbias, g.sum(0), atol=1e-5 * batch**0.5, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_loss_and_its_gradient_with_smoothing_spread_over_the_other_classes(choice: str, smoothing: float) -> None:
    draw = np.random.default_rng(0)
    logits, labels = draw.standard_normal((7, 5)), draw.integers(0, 5, 7)
    logits[0] *= 2000  # a sample that is far off
    targets = np.full((7, 5), smoothing / 4)
    targets[np.arange(7), labels] = 1 - smoothing
    powers = np.exp(logits - logits.max(1, keepdims=True))
    log_softmax = logits - logits.max(1, keepdims=True) - np.log(powers.sum(1, keepdims=True))
    cell, given = CrossEntropy(smoothing), [Tensor(logits, ms.float32), Tensor(labels, ms.int32)]
    (loss, right), gradient = ops.value_and_grad(cell, has_aux=True)(*given)
    assert float(loss.asnumpy()) == pytest.approx(-(targets * log_softmax).sum(1).mean(), rel=1e-5)
    assert float(right.asnumpy()) == (logits.argmax(1) == labels).sum()
    np.testing.assert_allclose(gradient.asnumpy(), (np.exp(log_softmax) - targets) / 7, rtol=1e-4, atol=1e-6)


def test_loss_of_what_is_not_a_number_is_none() -> None:
    logits = np.zeros((3, 4), np.float32)
    logits[1, 2] = np.nan
    loss, _ = CrossEntropy()(Tensor(logits), Tensor([0, 1, 2], ms.int32))
    assert np.isnan(loss.asnumpy())


def test_a_label_that_is_no_class_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="label 4 is none of 4 classes"):
        CrossEntropy()(Tensor(np.zeros((3, 4), np.float32)), Tensor([0, 4, 2], ms.int32))[0].asnumpy()


def test_batch_norm_of_float16_is_an_error() -> None:
    """Its values would be read as twice as many bytes."""
    vectors = [Parameter(Tensor(np.ones(3, np.float32)), name=name) for name in ("gamma", "beta", "mean", "variance")]
    with native_operators():
        norm = BatchNormTraining(Tensor([1e-5, 0.1, 0], ms.float32))
    with pytest.raises(RuntimeError, match="computes in float32 and bfloat16, not in float16"):
        norm(Tensor(np.ones((2, 3, 4, 4), np.float16)), *vectors)[0].asnumpy()


@settings(max_examples=30, deadline=None, derandomize=True)
@given(lengths=st.lists(st.integers(1, 200_000), min_size=1, max_size=5), seed=seeds)
@example(lengths=[3_000_000], seed=0)
def test_global_norm(lengths: list[int], seed: int) -> None:
    draw = np.random.default_rng(seed)
    gradients = [(1 + draw.standard_normal(length)).astype(np.float32) for length in lengths]
    norm = empty(1)
    call("global_norm", *gradients, norm)
    expected = np.sqrt(sum(np.sum(g.astype(float) ** 2) for g in gradients))
    assert float(norm[0]) == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_global_norm_tells_what_is_not_finite(choice: str, value: float) -> None:
    gradients = [np.ones((3, 4), np.float32), np.ones(5, np.float32)]
    assert float(GlobalNorm()(tuple(map(Tensor, gradients))).asnumpy()) == pytest.approx(17**0.5)
    gradients[1][4] = value
    assert not np.isfinite(GlobalNorm()(tuple(map(Tensor, gradients))).asnumpy())


def without_denormals(values: np.ndarray) -> np.ndarray:
    """Denormals as zeros: threads that one of MindSpore's has started take them so, others do not; in a job all do."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, 0, values)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(lengths=st.lists(st.integers(1, 200_000), min_size=1, max_size=5), factor=st.floats(-9, 9, width=32), seed=seeds)
def test_products_and_sums_of_a_window_are_numpys_bit_by_bit(lengths: list[int], factor: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    gradients = [draw.standard_normal(length).astype(np.float32) for length in lengths]
    products, sums, done = [empty(length) for length in lengths], [empty(length) for length in lengths], empty(1)
    call("scale", np.array(factor, np.float32), *gradients, *products)
    for first in (True, False):
        call("accumulate", np.array(first), *gradients, *sums, done)
    for gradient, product, total in zip(gradients, products, sums, strict=True):
        np.testing.assert_array_equal(without_denormals(product), without_denormals(gradient * np.float32(factor)))
        np.testing.assert_array_equal(total, gradient + gradient)


def test_products_of_lower_precision_are_float32(choice: str) -> None:
    tensors = Tensor([1.5, 2.0], ms.float16), Tensor([[4.0]], ms.float32)
    found = Scale()(tensors, Tensor(65536.0, ms.float32))
    assert [tensor.asnumpy().tolist() for tensor in found] == [[98304.0, 131072.0], [[262144.0]]]
    assert all(tensor.dtype == ms.float32 for tensor in found)


class Steps(nn.Cell):
    """Sums the weights, then steps. Returns the sum before the step."""

    def __init__(self, optimizer: nn.Optimizer) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer

    def construct(self, gradients: tuple[Tensor, ...], go: Tensor) -> tuple[Tensor, Tensor]:
        before, done = self.optimizer.parameters[0].sum(), Tensor(0.0, ms.float32)
        if self.optimizer.fused:
            return before, self.optimizer(gradients, go.astype(ms.float32))
        if go:
            done = ops.depend(done, self.optimizer(gradients))
        return before, done


def test_momentum_moves_weights_and_velocities_where_they_lie(choice: str) -> None:
    """The host sees the updated weights, its changes to them count, and a skipped step changes nothing."""
    draw = np.random.default_rng(0).standard_normal
    decays, rate = (5e-4, 0.0), 0.1
    weights = [Parameter(Tensor(draw(shape), ms.float32), name=f"w{shape}") for shape in ((3, 70_000), (5,))]
    groups = [{"params": [w], "weight_decay": decay} for w, decay in zip(weights, decays, strict=True)]
    optimizer = Momentum([*groups, {"order_params": weights}], decays, learning_rate=rate, momentum=0.9)
    steps, expected = Steps(optimizer), [w.asnumpy().astype(float) for w in weights]
    velocities = [np.zeros_like(w) for w in expected]
    for k, go in enumerate((True, True, False, True)):
        if k == 3:
            expected = [draw(w.shape) for w in expected]
            for weight, value in zip(weights, expected, strict=True):
                weight.set_data(Tensor(value, ms.float32))
        gradients = [draw(w.shape).astype(np.float32) for w in expected]
        before, _ = steps(tuple(map(Tensor, gradients)), Tensor(go))
        assert float(before.asnumpy()) == pytest.approx(expected[0].sum(), abs=0.05)
        for i, (g, decay) in enumerate(zip(gradients, decays, strict=True)):
            if go:
                velocities[i] = 0.9 * velocities[i] + g + decay * expected[i]
                expected[i] = expected[i] - rate * velocities[i]
        assert distance([w.asnumpy() for w in weights], expected) <= 1e-6
        assert distance([v.asnumpy() for v in optimizer.moments], velocities) <= 1e-6


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_on_every_kernel_is_the_same(decoupled: bool) -> None:
    found = []
    for name in ("onednn", "unfold"):
        kernels.use_backend(kernels.select_backend(name, on_cpu=True))
        draw = np.random.default_rng(0).standard_normal
        weights = [Parameter(Tensor(draw(shape), ms.float32), name=f"w{shape}") for shape in ((3, 70_000), (5,))]
        groups = weights if decoupled else [{"params": weights[:1], "weight_decay": 0.1}, {"params": weights[1:]}]
        options = {"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
        optimizer = Adam(groups, (0.1, 0.0), decoupled, **options)
        for _ in range(3):
            optimizer(tuple(Tensor(draw(w.shape), ms.float32) for w in weights))
            if optimizer.fused:
                optimizer(tuple(Tensor(draw(w.shape), ms.float32) for w in weights), Tensor(0.0, ms.float32))
            else:
                _ = [draw(w.shape) for w in weights]
        moments = [*optimizer.moment1, *optimizer.moment2, optimizer.beta1_power, optimizer.beta2_power]
        found.append([p.asnumpy() for p in (*weights, *moments)])
    for ours, theirs in zip(*found, strict=True):
        assert distance([ours], [theirs]) <= 1e-6


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    of=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9)),
    kernel=st.sampled_from([(1, 1, 0), (3, 1, 1), (3, 2, 1), (1, 2, 0)]),
    sides=st.tuples(st.booleans(), st.booleans()),
    seed=seeds,
)
def test_convolution_in_blocks_is_the_plain_one(of, kernel, sides, seed: int) -> None:
    n, into, out, side = of
    size, stride, padding = kernel
    geometry = Geometry.square(size, stride, padding, 1, 1)
    draw = np.random.default_rng(seed).standard_normal
    x = draw((n, 16 * into, side, side)).astype(np.float32)
    weight = draw((16 * out, 16 * into, size, size)).astype(np.float32)
    expected = operators.forward(x, weight, [], geometry)
    dy = draw(expected.shape).astype(np.float32)
    wanted = operators.gradients(x, weight, [], dy, geometry)
    laid_x, laid_y = (blocks if blocked else np.ascontiguousarray for blocked in sides)
    y, dx, dweight = operators.as_laid(laid_x(x), weight, laid_y(dy), geometry)
    assert distance([y], [laid_y(expected)]) <= 1e-6
    assert distance([dx], [laid_x(wanted[0])]) <= 1e-6 and distance([dweight], [wanted[1]]) <= 1e-6


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)),
    relu=st.booleans(),
    adds=st.booleans(),
    seed=seeds,
)
@example(shape=(8, 4, 16, 16), relu=True, adds=True, seed=0)  # on several threads
def test_batch_norm_in_blocks_is_the_plain_one(shape, relu: bool, adds: bool, seed: int) -> None:
    n, groups, height, width = shape
    draw, channels = np.random.default_rng(seed).standard_normal, 16 * groups
    x, dy, added = (draw((n, channels, height, width)).astype(np.float32) for _ in range(3))
    vectors = [np.abs(draw(channels)).astype(np.float32) for _ in range(4)]
    numbers = np.array([1e-3, 0.1, relu], np.float32)
    found = []
    for laid in (np.ascontiguousarray, blocks):
        more = [laid(added)] if adds else []
        y, dx, dadded = (empty(*laid(x).shape) for _ in range(3))
        means, variances, roots, dgamma, dbeta = (empty(channels) for _ in range(5))
        moving = [vector.copy() for vector in vectors[2:]]  # updated in place
        call("batch_norm", laid(x), *vectors[:2], *moving, numbers, *more, y, means, variances, roots)
        known = [means, roots, numbers, *([y] if adds else [])]
        outputs = [dx, dgamma, dbeta, *([dadded] if adds else [])]
        call("batch_norm_gradient", laid(dy), laid(x), *vectors[:2], *known, *outputs)
        infer = empty(*y.shape)
        call("batch_norm_inference", laid(x), *vectors, numbers, *more, infer)
        found.append([y, infer, *outputs, means, variances, *moving, roots])
    scale = max(1, float(np.abs(found[0][-1]).max()))  # 1 / σ multiplies what was rounded
    for plain, blocked in zip(*found, strict=True):
        wanted = blocks(plain) if plain.ndim == 4 else plain
        np.testing.assert_allclose(blocked, wanted, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("relu", [False, True])
def test_a_tensor_added_after_batch_norm_is_as_an_addition(choice: str, relu: bool) -> None:
    draw = np.random.default_rng(0).standard_normal
    x, added, dy = (Tensor(draw((4, 16, 5, 5)), ms.float32) for _ in range(3))
    ours, theirs = kernels.BatchNorm2d(16, relu=relu).set_train(), nn.BatchNorm2d(16, momentum=0.9).set_train()

    def reference(x: Tensor, added: Tensor) -> Tensor:
        y = theirs(x) + added
        return (ops.relu(y) if relu else y) * dy

    def found(x: Tensor, added: Tensor) -> Tensor:
        return ours(x, added) * dy

    for mine, their in zip(
        *(tuple(ops.grad(f, (0, 1), c.trainable_params())(x, added)) for f, c in ((found, ours), (reference, theirs))),
        strict=True,
    ):
        assert distance([t.asnumpy() for t in mine], [t.asnumpy() for t in their]) <= 1e-5
    for cell in (ours, theirs):
        cell.set_train(False)
    np.testing.assert_allclose(found(x, added).asnumpy(), reference(x, added).asnumpy(), rtol=1e-4, atol=1e-5)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    kernel=st.sampled_from([(2, 2, 0), (3, 2, 1), (3, 1, 1)]),
    shape=st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(3, 9), st.integers(3, 9)),
    relu=st.booleans(),
    seed=seeds,
)
def test_pooling_in_blocks_is_the_plain_one(kernel, shape, relu: bool, seed: int) -> None:
    size, stride, padding = kernel
    n, groups, height, width = shape
    draw = np.random.default_rng(seed)
    x = draw.integers(-4, 5, (n, 16 * groups, height, width)).astype(np.float32)  # with equals
    out = [(side + 2 * padding - size) // stride + 1 for side in (height, width)]
    dy, numbers = draw.standard_normal((n, 16 * groups, *out)), np.array([size, stride, padding, relu], np.int32)
    found = []
    for laid in (np.ascontiguousarray, blocks):
        gradient = laid(dy.astype(np.float32))
        y, taps, dx = empty(*gradient.shape), np.zeros(gradient.shape, np.uint8), empty(*laid(x).shape)
        call("max_pool", laid(x), numbers, y, taps)
        call("max_pool_gradient", gradient, taps, laid(x), numbers, dx)
        found.append((y, taps, dx))
    for plain, blocked in zip(*found, strict=True):
        np.testing.assert_array_equal(blocks(plain), blocked)


def test_dense_as_mindspore(choice: str) -> None:
    ms.set_seed(0)
    draw = np.random.default_rng(0).standard_normal
    x = Tensor(draw((5, 7)), ms.float32)
    ours, theirs = Dense(7, 3, relu=True), nn.Dense(7, 3, activation="relu")
    for one, other in zip(ours.trainable_params(), theirs.trainable_params(), strict=True):
        assert (one.name, one.shape) == (other.name, other.shape)
        other.set_data(one)
    found, expected = (ops.value_and_grad(cell, 0, cell.trainable_params())(x) for cell in (ours, theirs))
    for mine, their in zip(found[1][1], expected[1][1], strict=True):
        np.testing.assert_allclose(mine.asnumpy(), their.asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[0].asnumpy(), expected[0].asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1][0].asnumpy(), expected[1][0].asnumpy(), rtol=1e-5, atol=1e-6)
