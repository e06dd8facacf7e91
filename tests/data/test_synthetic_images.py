"""Synthetic images are the same for a seed, and there is something to learn in them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msaccel.data.synthetic_images import generate

side = st.integers(1, 12)


@settings(deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    shape=st.tuples(st.integers(1, 3), side, side),
    classes=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_shapes_types_and_even_labels(
    sizes: tuple[int, int], shape: tuple[int, int, int], classes: int, seed: int
) -> None:
    for size, (images, labels) in zip(sizes, generate(sizes, shape, classes, seed), strict=True):
        assert images.shape == (size, *shape) and images.dtype == np.uint8 and images.flags.c_contiguous
        assert labels.shape == (size,) and labels.dtype == np.int32
        counts = np.bincount(labels, minlength=classes)
        assert len(counts) == classes and counts.max() - counts.min() <= 1


def test_a_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    first, again, other = (generate((50, 20), (1, 28, 28), 10, seed) for seed in (3, 3, 4))
    for (images, labels), (same, same_labels), (others, _) in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(images, same)
        np.testing.assert_array_equal(labels, same_labels)
        assert not np.array_equal(images, others)
    assert not np.array_equal(first[0][0][:20], first[1][0]), "the test set is not the training set"


@pytest.mark.parametrize("shape", [(1, 28, 28), (1, 32, 32), (3, 16, 8)])
def test_class_means_of_the_training_set_classify_the_test_set(shape: tuple[int, int, int]) -> None:
    (images, labels), (test_images, test_labels) = generate((500, 200), shape, 10, 0)
    means = np.stack([images[labels == label].mean(0).ravel() for label in range(10)])
    distances = ((test_images.reshape(200, 1, -1) - means) ** 2).sum(-1)
    assert (distances.argmin(1) == test_labels).mean() > 0.95
