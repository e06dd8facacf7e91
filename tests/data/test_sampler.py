"""The order of samples depends on seed, epoch and the global batch, and on nothing else."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msaccel.data.sampler import Sampler, UpdateIndices, permutation

small = st.integers(1, 6)
samples = st.integers(1, 200)
seeds = st.integers(0, 2**32 - 1)


def used(update: UpdateIndices) -> list[int]:
    """All samples of an update, in rank and micro-batch order."""
    return [int(index) for index in chain.from_iterable(chain.from_iterable(update))]


@given(n=samples, micro_batch=small, steps=small, ranks=small, seed=seeds, epoch=st.integers(0, 99))
def test_every_sample_once_an_epoch(n: int, micro_batch: int, steps: int, ranks: int, seed: int, epoch: int) -> None:
    order = Sampler(n, seed, micro_batch, steps, ranks)
    updates = list(order.epoch(epoch))
    assert len(updates) == order.updates_per_epoch
    assert sorted(chain.from_iterable(map(used, updates))) == list(range(n))


@given(n=samples, micro_batch=small, steps=small, ranks=small, seed=seeds)
def test_a_split_changes_no_update(n: int, micro_batch: int, steps: int, ranks: int, seed: int) -> None:
    split = Sampler(n, seed, micro_batch, steps, ranks)
    whole = Sampler(n, seed, split.global_batch)
    for parts, batch in zip(split.epoch(3), whole.epoch(3), strict=True):
        assert used(parts) == used(batch)


@given(n=samples, micro_batch=small, steps=small, ranks=small)
def test_slices_stand_where_the_formula_says(n: int, micro_batch: int, steps: int, ranks: int) -> None:
    order = permutation(0, 1, n)
    size = micro_batch * steps * ranks
    for u, update in enumerate(Sampler(n, 0, micro_batch, steps, ranks).epoch(1)):
        batch = order[u * size : (u + 1) * size]
        assert len(update) == ranks
        for r, micro_batches in enumerate(update):
            expected = [batch[(r * steps + j) * micro_batch :][:micro_batch] for j in range(steps)]
            expected = [part for part in expected if len(part)]
            assert len(micro_batches) == len(expected)
            for mine, theirs in zip(micro_batches, expected, strict=True):
                np.testing.assert_array_equal(mine, theirs)


@given(n=samples, micro_batch=small, steps=small, ranks=small)
def test_only_the_last_update_is_short(n: int, micro_batch: int, steps: int, ranks: int) -> None:
    *full, last = Sampler(n, 0, micro_batch, steps, ranks).epoch(0)
    for update in full:
        assert [[len(part) for part in rank] for rank in update] == [[micro_batch] * steps] * ranks
    parts = list(chain.from_iterable(last))
    assert all(len(part) == micro_batch for part in parts[:-1]) and 0 < len(parts[-1]) <= micro_batch


def test_a_short_update_leaves_ranks_without_samples() -> None:
    (update,) = Sampler(samples=5, seed=0, micro_batch=2, steps=2, ranks=3).epoch(0)
    assert [[len(part) for part in rank] for rank in update] == [[2, 2], [1], []]


@given(seed=st.integers(0, 1000), epoch=st.integers(0, 1000))
def test_seed_and_epoch_each_give_another_order(seed: int, epoch: int) -> None:
    order = permutation(seed, epoch, 100)
    np.testing.assert_array_equal(order, permutation(seed, epoch, 100))
    for other in ((seed + 1, epoch), (seed, epoch + 1), (epoch, seed + 1001)):
        assert not np.array_equal(order, permutation(*other, 100))


def test_the_order_is_the_same_on_every_machine() -> None:
    assert permutation(0, 0, 10).tolist() == [4, 6, 2, 7, 3, 5, 9, 0, 8, 1]
    assert permutation(0, 1, 10).tolist() == [9, 1, 3, 8, 7, 6, 0, 4, 2, 5]


@pytest.mark.parametrize(
    ("n", "batch", "updates"), [(60000, 128, 469), (60000, 32, 1875), (1, 7, 1), (7, 7, 1), (8, 7, 2)]
)
def test_updates_per_epoch_counts_the_short_one(n: int, batch: int, updates: int) -> None:
    assert Sampler(n, 0, batch).updates_per_epoch == updates
