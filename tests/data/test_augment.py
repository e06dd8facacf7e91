"""Augmentation is a function of seed, epoch and sample alone, and shows what its sources describe."""

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from msaccel.data.augment import RANDOM_NUMBERS, RATIO, CropAndFlip, random_crop
from msaccel.data.counter_rng import uniform
from msaccel.data.dataset import InMemoryDataset
from msaccel.data.sampler import Sampler
from msaccel.data.transforms import CIFAR10

SAMPLES = 60
PADDING = 4


def augmented(seed: int, padding: int = PADDING, pad_mode: str = "zeros", flip: str = "random") -> CropAndFlip:
    return CropAndFlip(seed, padding, pad_mode, flip)


@pytest.fixture(scope="module")
def split() -> InMemoryDataset:
    """Pictures of noise: no two pixels, channels or samples are alike for long."""
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(SAMPLES, 3, 12, 10), dtype=np.uint8)
    labels = np.arange(SAMPLES, dtype=np.int32) % 10
    return InMemoryDataset(images, labels, CIFAR10.table, augmented(7))


def epoch_of(split: InMemoryDataset, order: Sampler, epoch: int) -> list[np.ndarray]:
    """What all ranks see in each update of an epoch, in the order of samples."""
    updates = []
    for ranks in order.epoch(epoch):
        batches = [split.batch(indices, epoch)[0] for micro_batches in ranks for indices in micro_batches]
        updates.append(np.concatenate(batches))
    return updates


@hypothesis_settings(deadline=None, max_examples=25)
@given(micro=st.integers(1, 4), steps=st.integers(1, 4), ranks=st.integers(1, 4), epoch=st.integers(0, 5))
def test_any_split_of_a_global_batch_sees_the_same_pixels(
    split: InMemoryDataset, micro: int, steps: int, ranks: int, epoch: int
) -> None:
    merged = Sampler(SAMPLES, 0, micro * steps * ranks)
    parted = Sampler(SAMPLES, 0, micro, steps, ranks)
    pairs = zip(epoch_of(split, merged, epoch), epoch_of(split, parted, epoch), strict=True)
    for whole, pieces in pairs:
        np.testing.assert_array_equal(whole, pieces)


def test_a_sample_keeps_its_draws_in_a_part_of_the_set(split: InMemoryDataset) -> None:
    chosen = np.array([50, 3, 17])
    part = split.subset(np.array([17, 50, 3])).subset(np.array([1, 2, 0]))
    np.testing.assert_array_equal(part.batch(np.arange(3), 4)[0], split.batch(chosen, 4)[0])


def test_epochs_and_seeds_differ_and_evaluation_is_left_alone(split: InMemoryDataset) -> None:
    everything = np.arange(SAMPLES)
    other = InMemoryDataset(split.images, split.labels, split.table, augmented(8))
    first = split.batch(everything, 0)[0]
    assert (first != split.batch(everything, 1)[0]).any(axis=(1, 2, 3)).mean() > 0.9
    assert (first != other.batch(everything, 0)[0]).any(axis=(1, 2, 3)).mean() > 0.9
    plain = InMemoryDataset(split.images, split.labels, split.table)
    np.testing.assert_array_equal(split.batch(everything)[0], plain.batch(everything, 0)[0])


@pytest.mark.parametrize("padding", [4, 2])
@pytest.mark.parametrize(("pad_mode", "numpys"), [("zeros", "constant"), ("reflect", "reflect")])
def test_crops_are_windows_of_the_padded_picture_or_their_mirror_image(
    split: InMemoryDataset, padding: int, pad_mode: str, numpys: Literal["constant", "reflect"]
) -> None:
    """Every one of the 9 × 9 places and both directions occur, each about as often."""
    images, across = split.images, 2 * padding + 1
    padded = np.pad(images, ((0, 0), (0, 0), (padding, padding), (padding, padding)), numpys)
    places: dict[tuple[int, int, bool], int] = {}
    for epoch in range(40):
        shown = augmented(0, padding, pad_mode)(images, epoch, np.arange(SAMPLES))
        draws = uniform(0, epoch, np.arange(SAMPLES), 3)
        for number in range(SAMPLES):
            top, left = (int(draws[number, axis] * across) for axis in (0, 1))
            mirrored = bool(draws[number, 2] < 0.5)
            window = padded[number, :, top : top + 12, left : left + 10]
            np.testing.assert_array_equal(shown[number], window[..., ::-1] if mirrored else window)
            places[top, left, mirrored] = places.get((top, left, mirrored), 0) + 1
    assert len(places) == across**2 * 2
    assert abs(sum(n for (_, _, mirrored), n in places.items() if mirrored) / (40 * SAMPLES) - 0.5) < 0.05


def is_mirrored(shown: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Of images that were not moved, which are mirrored; shape (n,)."""
    same, other = ((shown == turned).all((1, 2, 3)) for turned in (images, images[..., ::-1]))
    assert (same ^ other).all()
    return other


@hypothesis_settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**31 - 1), epoch=st.integers(0, 1000))
def test_alternating_flips_mirror_each_picture_in_every_other_epoch(
    split: InMemoryDataset, seed: int, epoch: int
) -> None:
    flips, everything = augmented(seed, 0, "zeros", "alternating"), np.arange(SAMPLES)
    shown = [flips(split.images, number, everything) for number in range(epoch, epoch + 3)]
    first, second, third = (is_mirrored(images, split.images) for images in shown)
    np.testing.assert_array_equal(first, ~second)
    np.testing.assert_array_equal(first, third)


def test_the_first_flip_is_random(split: InMemoryDataset) -> None:
    everything = np.arange(SAMPLES)
    first = [augmented(seed, 0, "zeros", "alternating")(split.images, 0, everything) for seed in range(40)]
    mirrored = np.array([is_mirrored(images, split.images) for images in first])
    assert abs(mirrored.mean() - 0.5) < 0.05 and mirrored.mean(0).min() > 0.1 and mirrored.mean(0).max() < 0.9


def test_draws_are_uniform_and_unrelated() -> None:
    draws = uniform(0, 0, np.arange(20_000), 4)
    assert draws.shape == (20_000, 4) and draws.min() >= 0 and draws.max() < 1
    for column in draws.T:
        assert np.histogram(column, 10, (0, 1))[0] == pytest.approx(2000, rel=0.1)
    again = uniform(0, 1, np.arange(20_000), 4)
    for other in (draws[1:, 0], draws[:-1, 1], again[:-1, 0], uniform(1, 0, np.arange(20_000), 1)[:-1, 0]):
        assert abs(np.corrcoef(draws[:-1, 0], other)[0, 1]) < 0.03
    np.testing.assert_array_equal(uniform(0, 0, np.array([7]), 2)[0], draws[7, :2])


def splitmix(bits: int) -> int:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> shift)) * factor % 2**64
    return bits ^ (bits >> 31)


def test_draws_are_the_hash_of_seed_epoch_and_sample() -> None:
    """Written again in Python's integers. Other draws would change every result with augmentation."""
    gamma, samples = 0x9E3779B97F4A7C15, np.array([3, 2**40])
    found = uniform(1, 2, samples, 2)
    for place, sample in enumerate(samples.tolist()):
        state = 0
        for part in (1, 2, sample):
            state = splitmix((state + (part + 1) * gamma) % 2**64)
        for draw in range(2):
            assert found[place, draw] == (splitmix((state + (draw + 1) * gamma) % 2**64) >> 11) * 2.0**-53
    assert found[0, 0] == 0.45769561165979733


@hypothesis_settings(deadline=None)
@given(width=st.integers(1, 3000), height=st.integers(1, 3000), sample=st.integers(0, 10**7))
def test_crops_of_photographs_lie_inside_and_keep_their_ratio(width: int, height: int, sample: int) -> None:
    draws = uniform(0, 0, np.array([sample]), RANDOM_NUMBERS)[0, 1:].tolist()
    left, top, right, bottom = random_crop(width, height, draws)
    assert 0 <= left < right <= width and 0 <= top < bottom <= height
    wide, tall = right - left, bottom - top
    slack = 1 + 1 / min(wide, tall)  # sides are whole pixels
    assert RATIO[0] / slack <= wide / tall <= RATIO[1] * slack


def test_crops_of_photographs_spread_over_scale_and_place() -> None:
    draws = uniform(0, 0, np.arange(4000), RANDOM_NUMBERS)[:, 1:].tolist()
    boxes = np.array([random_crop(400, 300, numbers) for numbers in draws], float)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / (400 * 300)
    assert 0.075 < areas.min() < 0.1 and areas.max() > 0.9
    # Uniform up to 0.5625; above, a shape of ratio r fits only if the share is at most 0.75 r.
    assert np.median(areas) == pytest.approx(0.42, abs=0.02)
    middle = boxes.reshape(-1, 2, 2).mean(1)
    assert middle.mean(0) == pytest.approx([200, 150], rel=0.03)
