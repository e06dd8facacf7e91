"""Progressive resizing: the sizes of epochs, the images that updates see, what is evaluated, and what it costs."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindspore import Tensor, nn

from msaccel.accel import average
from msaccel.accel.resize import METHOD, ResizeSettings
from msaccel.accel.resize.samples import ResizedSamples
from msaccel.accel.resize.schedule import side
from msaccel.data.augment import CropAndFlip
from msaccel.data.dataset import InMemoryDataset
from msaccel.data.sampler import Sampler
from msaccel.data.transforms import CIFAR10, look_up, shrink
from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.errors import ConfigError
from msaccel.kernels import BatchNorm2d
from msaccel.step.update import Update, sizes
from msaccel.training.evaluation import Evaluator
from msaccel.training.loader import Loader
from msaccel.training.notebook import build_job
from msaccel.training.speed_round import TimedJob
from tests.conftest import assert_same_bits
from tests.running import Store
from tests.training.test_loop import UPDATES, watch  # noqa: F401

pytestmark = pytest.mark.usefixtures("graph_mode")

AUGMENT = CropAndFlip(3, 4, "zeros", "random")
DEFAULTS = ResizeSettings(initial_scale=0.5, delay_fraction=0.5, finetune_fraction=0.2, size_increment=4)
PIXELS = ("accel.resize.initial_scale=0.5", "accel.resize.size_increment=1")
TENTHS = st.integers(0, 9)
RESNET8 = ("model=resnet50", "model.depth=8", "model.image_size=16", "data=synthetic")


class AnySize(nn.Cell):
    """Batch norm, a mean over pixels and a dense layer, for images (n, 1, h, w)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dense = BatchNorm2d(1), nn.Dense(1, 4)

    def construct(self, images: Tensor) -> Tensor:
        return self.dense(self.norm(images).mean((2, 3)))


@pytest.fixture
def pictures() -> InMemoryDataset:
    images = np.random.default_rng(0).integers(256, size=(23, 3, 32, 32), dtype=np.uint8)
    return InMemoryDataset(images, np.arange(23, dtype=np.int32), CIFAR10.table, AUGMENT)


@pytest.mark.parametrize(
    ("full", "epochs", "expected"),
    [
        (32, 10, [16, 16, 16, 16, 16, 16, 20, 28, 32, 32]),
        (32, 5, [16, 16, 16, 20, 32]),
        (32, 2, [16, 32]),
        (224, 10, [112, 112, 112, 112, 112, 112, 148, 188, 224, 224]),
    ],
)
def test_sizes_with_the_defaults(full: int, epochs: int, expected: list[int]) -> None:
    assert [side(DEFAULTS, full, epoch, epochs) for epoch in range(epochs)] == expected


@given(TENTHS.filter(bool), TENTHS, TENTHS, st.integers(1, 9), st.integers(4, 300), st.integers(1, 40))
def test_sizes_grow_in_increments_and_end_full(
    scale: int, delay: int, finetune: int, increment: int, full: int, epochs: int
) -> None:
    if delay + finetune > 10:
        delay = 10 - finetune
    settings = ResizeSettings(scale / 10, delay / 10, finetune / 10, increment)
    sides = [side(settings, full, epoch, epochs) for epoch in range(epochs)]
    assert sides == sorted(sides) and sides[-1] == full == side(settings, full, epochs + 7, epochs)
    for epoch, found in enumerate(sides[:-1]):
        begun, start, end = Fraction(epoch, epochs), Fraction(delay, 10), 1 - Fraction(finetune, 10)
        if begun >= end:
            assert found == full
            continue
        grown = (begun - start) / (end - start) if begun > start else 0
        exact = full * (Fraction(scale, 10) + (1 - Fraction(scale, 10)) * grown)
        assert found in (increment, full) or (found % increment == 0 and abs(found - exact) <= Fraction(increment, 2))


def test_images_are_augmented_and_then_made_smaller(pictures: InMemoryDataset) -> None:
    indices = np.array([5, 0, 22])
    samples = ResizedSamples(DEFAULTS, pictures, epochs=5)
    for epoch, side_now in ((0, 16), (3, 20)):
        images, labels = samples.of(epoch).batch(indices, epoch)
        augmented = AUGMENT(pictures.images[indices], epoch, indices)
        np.testing.assert_array_equal(images, look_up(CIFAR10.table, shrink(augmented, side_now, side_now)))
        assert labels.tolist() == [5, 0, 22] and images.shape == (3, *samples.of(epoch).shape)
        assert samples.report(epoch) == {"resize/pixels": side_now}
    assert (samples.of(0).batch(indices, 0)[0] != samples.of(1).batch(indices, 1)[0]).any()


def test_an_epoch_at_full_size_is_the_training_set_itself(pictures: InMemoryDataset) -> None:
    assert ResizedSamples(DEFAULTS, pictures, epochs=5).of(4) is pictures


def test_ranks_and_windows_see_the_same_pixels(pictures: InMemoryDataset) -> None:
    samples, found = ResizedSamples(DEFAULTS, pictures, epochs=5).of(3), []
    for sampler in (Sampler(23, 0, 8), Sampler(23, 0, 2, 2, 2)):
        updates = Loader(samples, SINGLE_PROCESS).epoch(sampler, 3)
        found.append([np.concatenate([images for window in ranks for images, _ in window]) for ranks in updates])
    for whole, parts in zip(*found, strict=True):
        np.testing.assert_array_equal(whole, parts)


def test_part_of_a_smaller_set_is_as_small(pictures: InMemoryDataset) -> None:
    part = pictures.resized(8, 8).subset(np.array([3, 1]))
    np.testing.assert_array_equal(part.batch(np.array([0]), 2)[0], pictures.resized(8, 8).batch(np.array([3]), 2)[0])


@pytest.mark.parametrize(("accel", "paid"), [("resize", 3), pytest.param("[resize,sam]", 6, marks=pytest.mark.slow)])
def test_a_job_of_two_epochs(watch, patches, monkeypatch, accel: str, paid: int) -> None:  # noqa: F811
    """Images of 3 × 4 pixels in the second epoch, and of 2 × 2, a third of the pixels, in the first."""
    watched = watch(AnySize(), f"accel={accel}", *PIXELS)
    seen, compiled, evaluated = [], Counter(), []
    kind = type(watched.training.stages[0].update)
    call, build, score = kind.__call__, kind.compile, Evaluator.__call__

    def spied_call(update: Update, windows: list, rate: float) -> object:
        seen.append((sum(n for window in windows for n in sizes(window)), windows[0][0][0].shape[2:]))
        return call(update, windows, rate)

    def spied_build(update: Update, images: np.ndarray, labels: np.ndarray) -> None:
        assert watched.training.counts.clock._since is None, "the clock stands"
        compiled[images.shape] += 1
        build(update, images, labels)

    def spied_score(evaluator: Evaluator, data: InMemoryDataset, *mistakes: object) -> object:
        evaluated.append(data.shape)
        return score(evaluator, data, *mistakes)

    monkeypatch.setattr(kind, "__call__", spied_call)
    monkeypatch.setattr(kind, "compile", spied_build)
    monkeypatch.setattr(Evaluator, "__call__", spied_score)
    watched.training.train()
    assert [shape for _, shape in seen] == [(2, 2)] * 3 + [(3, 4)] * 3
    assert compiled == {(8, 1, 2, 2): 1, (8, 1, 3, 4): 1}
    assert evaluated and set(evaluated) == {(1, 3, 4)}
    costs = np.cumsum([paid * samples * (shape[0] * shape[1] / 12) for samples, shape in seen])
    np.testing.assert_allclose(watched.run.values("cost/forward_equivalents"), costs, rtol=1e-12)
    assert watched.run.values("resize/pixels") == [2, 2, 2, 3, 3, 3] and UPDATES == 6
    assert watched.run.values("epoch") == pytest.approx(np.cumsum([16, 16, 8] * 2) / 40)


def test_statistics_of_averaged_weights_are_measured_at_full_size(watch, monkeypatch) -> None:  # noqa: F811
    watched, shapes = watch(AnySize(), "accel=[resize,average]", "accel.average.every=1", *PIXELS), []
    training, measure = watched.training, watched.statistics.measured_anew
    settings = training.plan.config.accel["average"]
    weights = watched.network.trainable_params()
    training.evaluation_weights = average.METHOD.evaluation_weights(settings, weights, UPDATES)

    def spied(batches: object, forward: nn.Cell) -> object:
        found = list(batches)
        shapes.extend(images.shape[1:] for images, _ in found)
        return measure(found, forward)

    monkeypatch.setattr(watched.statistics, "measured_anew", spied)
    training.train()
    assert shapes and set(shapes) == {(1, 3, 4)}


def test_the_last_epoch_of_a_job_is_that_of_a_job_without_the_method(job, patches) -> None:
    """The same weights and the same samples of a full epoch end in the same bits."""
    states = []
    for accel in (("accel=resize", *PIXELS), ("accel=none",)):
        parts = job("data=synthetic", *accel, "train.batch_size=8", network=AnySize())
        for weight in parts.network.trainable_params():
            weight.set_data(Tensor(np.linspace(-1, 1, weight.size, dtype=np.float32).reshape(weight.shape)))
        train = patches.subset(np.arange(40))
        if settings := parts.config.accel.get("resize"):
            train = METHOD.epoch_samples(settings, train, 2).of(1)
        for windows in Loader(train, SINGLE_PROCESS).epoch(Sampler(40, 0, 8), 1):
            parts.update(windows, 0.1)
        states.append(parts.state())
    assert_same_bits(*states)


def test_a_job_of_one_epoch_is_refused_when_its_updates_say_so(watch, patches) -> None:  # noqa: F811
    for epochs, full in ((1, patches), (5, patches.resized(1, 1))):
        with pytest.raises(ConfigError, match=r"^accel.*resize.*; write [^\n]+\.$"):
            METHOD.epoch_samples(DEFAULTS, full, epochs)


@pytest.mark.slow
def test_such_a_job_has_no_single_speed() -> None:
    sizes = ("data.train_size=64", "data.test_size=8", "train.batch_size=16")
    with pytest.raises(ConfigError, match="accel=resize has no single speed: its updates are of several kinds"):
        TimedJob((*RESNET8, *sizes, "accel=resize"))
    windows = build_job(*RESNET8, *sizes, "accel=resize", "train.epochs=2").windows()
    assert [next(windows)[0][0][0].shape[-1] for _ in range(9)] == [8] * 4 + [16] * 5


@pytest.mark.slow
def test_a_job_of_a_residual_network(store: Store) -> None:
    ended = store.run(*RESNET8, "data.train_size=96", "data.test_size=40", "accel=resize", "train.epochs=5")
    assert ended.returncode == 0, ended.stderr
    (run,) = store.runs()
    history = store.history(run)
    assert [value for _, value in history["resize/pixels"]] == [8] * 9 + [12] * 3 + [16] * 3
    assert run.data.metrics["cost/forward_equivalents"] == 3 * 96 * (3 / 4 + (12 / 16) ** 2 + 1)
