"""Airbench: what it computes against NumPy, its whitening filters, how it begins, and the jobs that train it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor
from numpy.lib.stride_tricks import sliding_window_view
from safetensors.numpy import load_file

from msaccel import models
from msaccel.models.airbench import AirbenchSettings
from msaccel.models.airbench.network import Airbench
from msaccel.models.airbench.whitening import EPSILON, whitening_filters
from msaccel.training.builder import build_network
from msaccel.training.job import load_data
from tests import reference
from tests.conftest import Job, assert_same_bits
from tests.running import Store, soak
from tests.training import test_resume_exact

pytestmark = pytest.mark.usefixtures("graph_mode")

Array = np.ndarray
EPS = 1e-5
SMALL = ("model=airbench", "model.widths=[16,16,32]", "data=synthetic", "data.train_size=60", "data.test_size=50")


def settings(widths: tuple[int, ...] = (16, 16, 32), **further: object) -> AirbenchSettings:
    given = {"init": "default", "classes": 7, **further}
    return AirbenchSettings("airbench", widths=list(widths), **given)


def build(seed: int = 0, **further: object) -> Airbench:
    ms.set_seed(seed)
    network = models.build(settings(**further))
    assert isinstance(network, Airbench)
    return network


def images(n: int, seed: int = 0) -> Array:
    """Neighbouring pixels and channels are alike, as in photographs."""
    draw = np.random.default_rng(seed).standard_normal((n, 3, 34, 34)) @ np.full((34, 34), 0.1) / 4
    noise = np.random.default_rng(seed + 1).standard_normal((n, 3, 34, 34))
    smooth = sliding_window_view(draw + noise + noise.mean(1, keepdims=True), (3, 3), (2, 3)).mean((-2, -1))
    return smooth.astype(np.float32)


def values(network: Airbench) -> dict[str, Array]:
    return {parameter.name: parameter.asnumpy().astype(float) for parameter in network.get_parameters()}


def gelu(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def logits_of(weights: dict[str, Array], x: Array, training: bool) -> Array:
    """The network in float64; with `training` batch norm takes the statistics of these images."""

    def norm(y: Array, name: str) -> Array:
        mean, variance = weights[f"{name}.moving_mean"], weights[f"{name}.moving_variance"]
        if training:
            mean, variance = y.mean((0, 2, 3)), y.var((0, 2, 3))
        scaled = (y - mean.reshape(1, -1, 1, 1)) / np.sqrt(variance + EPS).reshape(1, -1, 1, 1)
        return gelu(scaled + weights[f"{name}.beta"].reshape(1, -1, 1, 1))

    def most(y: Array, side: int) -> Array:
        return sliding_window_view(y, (side, side), (2, 3))[:, :, ::side, ::side].max((-2, -1))

    y = gelu(reference.convolution(x.astype(float), weights["whiten.weight"]))
    for group in map("groups.{}".format, range(3)):
        y = norm(most(reference.convolution(y, weights[f"{group}.conv1.weight"], padding=1), 2), f"{group}.norm1")
        y = norm(reference.convolution(y, weights[f"{group}.conv2.weight"], padding=1), f"{group}.norm2")
    return most(y, 3)[..., 0, 0] @ weights["head.weight"].T / 9


@pytest.fixture
def operators(choice: str) -> Iterator[str]:
    """Layers in blocks of 16 channels, and plain ones."""
    yield choice


@pytest.mark.parametrize("training", [True, False])
def test_logits(operators: str, training: bool) -> None:
    network, x = build(), images(6)
    network.initialise_from(x)
    draw = np.random.default_rng(0)
    for parameter in network.get_parameters():  # shifts and statistics that show
        if parameter.ndim == 1 and not parameter.name.endswith("gamma"):
            parameter.set_data(Tensor(draw.uniform(0.2, 1, parameter.shape).astype(np.float32)))
    expected = logits_of(values(network), x, training)
    found = network.set_train(training)(Tensor(x)).asnumpy()
    assert expected.shape == (6, 7) and reference.distance([found], [expected]) <= 1e-5


def test_weights_of_the_published_widths() -> None:
    network = build(widths=(64, 256, 256), classes=10)
    trained = {weight.name: weight.shape for weight in network.trainable_params()}
    convolutions = {name: shape for name, shape in trained.items() if len(shape) == 4}
    assert list(convolutions.values()) == [
        (64, 24, 3, 3), (64, 64, 3, 3), (256, 64, 3, 3), (256, 256, 3, 3), (256, 256, 3, 3), (256, 256, 3, 3)
    ]  # fmt: skip
    assert {name for name in trained if name not in convolutions} == {
        "head.weight", *(f"groups.{group}.norm{place}.beta" for group in range(3) for place in (1, 2))
    }  # fmt: skip
    assert trained["head.weight"] == (10, 256) and network.outer() == {"head.weight"}
    assert network.undecayed() == {name for name, shape in trained.items() if len(shape) == 1}
    assert network.whiten.weight.shape == (24, 3, 2, 2)


def test_convolutions_begin_as_the_identity() -> None:
    network, other = build(), build(init="normal(0.01)")
    x = np.random.default_rng(0).standard_normal((2, 16, 7, 7)).astype(np.float32)
    passed = network.groups[0].conv2.set_train(False)
    found = reference.convolution(x, passed.weight.asnumpy(), padding=1)
    np.testing.assert_allclose(found, x, atol=1e-6)
    first, third = (network.groups[place].conv1.weight.asnumpy() for place in (0, 2))
    for weight, channels in ((first, 16), (third, 16)):
        assert (weight[:channels].reshape(channels, -1).sum(1) == 1).all() and (
            weight[:channels] != 0
        ).sum() == channels
    bound = 1 / np.sqrt(16 * 9)
    assert 0.9 * bound < np.abs(third[16:]).max() <= bound and third[16:].std() == pytest.approx(
        bound / 3**0.5, rel=0.1
    )
    assert other.groups[2].conv1.weight.asnumpy().std() == pytest.approx(0.01, rel=0.1)


def test_filters_are_the_eigenvectors_of_all_patches() -> None:
    x = images(20)
    patches = sliding_window_view(x.astype(float), (2, 2), (2, 3)).transpose(0, 2, 3, 1, 4, 5).reshape(-1, 12)
    filters = whitening_filters(x, 2).reshape(12, 12).astype(float)
    responses = patches @ filters.T
    spectrum = np.linalg.eigh(patches.T @ patches / len(patches))[0][::-1]
    expected = np.diag(spectrum / (spectrum + EPSILON))
    np.testing.assert_allclose(responses.T @ responses / len(patches), expected, atol=1e-5)
    assert expected[0, 0] > 0.99, "the patches are no noise below EPSILON"
    assert (filters[np.arange(12), np.abs(filters).argmax(1)] > 0).all()


def test_equal_channels_have_finite_filters() -> None:
    grey = np.repeat(images(4)[:, :1], 3, axis=1)
    assert np.abs(whitening_filters(grey, 2)).max() <= 1 / np.sqrt(EPSILON)


def test_filters_come_with_both_signs_from_the_first_images_alone(composed: Callable, monkeypatch) -> None:
    monkeypatch.setattr(Airbench, "initialised_from", 40)
    config = composed(*SMALL)
    train = load_data(config).train
    found = build_network(config, train).whiten.weight.asnumpy()
    expected = whitening_filters(train.batch(np.arange(40))[0], 2)
    np.testing.assert_array_equal(found, np.concatenate((expected, -expected)))
    assert (build_network(config).whiten.weight.asnumpy() != found).all(), "which files' weights take the place of"


def test_updates_leave_filters_and_scales_alone(job: Callable[..., Job], composed: Callable) -> None:
    parts = job(*SMALL, "train.batch_size=20", "optimizer=muon", "optimizer.weight_decay=0.3")
    before = values(parts.network)
    parts.update(next(parts.windows(load_data(composed(*SMALL)).train, 60)), 0.1)
    after = values(parts.network)
    moved = {name for name in before if (before[name] != after[name]).any()}
    assert {name for name in before if name not in moved} == {
        "whiten.weight", *(f"groups.{group}.norm{place}.gamma" for group in range(3) for place in (1, 2))
    }  # fmt: skip


TWO_RANKS = ("device=cpu4", "device.ranks_per_server=2", "device.simulate=always")


def test_two_widths_are_refused(composed: Callable) -> None:
    (said,) = composed(*SMALL, "model.widths=[64,256]").model.refusals()
    assert said == "model.widths has 2 numbers for the 3 groups of model=airbench; write model.widths=[64,256,256]."


@pytest.mark.slow
@pytest.mark.parametrize(
    "further",
    [
        (),
        *soak(
            (*TWO_RANKS, "accel=average", "accel.average.every=1"),
            ("accel=[accum,clip]", "accel.accum.steps=2"),
        ),
    ],
)
def test_a_resumed_job_needs_no_new_filters(composed: Callable, tmp_path: Path, further: tuple[str, ...]) -> None:
    given = (*SMALL, "train.batch_size=10", "train.epochs=2", "train.tta=shift", "optimizer=muon", *further)
    train = load_data(composed(*given)).train
    through = test_resume_exact.Job(given, tmp_path / "through", composed, lambda config: build_network(config, train))
    through.folder.mkdir()
    through.train({4: tmp_path / "killed"})
    resumed = test_resume_exact.Job(given, tmp_path / "killed", composed)
    logged = {(name, step) for name, step, _ in through.client.points if step <= 4}
    resumed.client.points = [point for point in through.client.points if point[:2] in logged]
    resumed.train({}, logged)
    assert resumed.points() == through.points()
    ends = [load_file(one.folder / "last.safetensors") for one in (resumed, through)]
    assert_same_bits(*ends)
    assert (ends[0]["whiten.weight"][:12] == whitening_filters(train.batch(np.arange(60))[0], 2)).all()


@pytest.mark.slow
def test_a_run_is_scored_again_as_it_was(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    from msaccel.__main__ import main

    ended = store.run(*SMALL, "train.tta=flip", "train.batch_size=20", "train.epochs=1", "accel=none")
    assert ended.returncode == 0, ended.stderr
    (run,) = store.runs()
    capfd.readouterr()
    assert main(["eval", "--tracking-uri", store.uri, run.info.run_id]) == 0
    assert f"loss {run.data.metrics['final/loss']:.6f}" in capfd.readouterr().out
    assert main(["compare", "--tracking-uri", store.uri]) == 0
