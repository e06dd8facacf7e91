"""What differs between ranks is kept for each, what does not once, and each rank gets its own back."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

from msaccel.checkpoint import gather
from msaccel.checkpoint.resume_file import Arrays, ResumeState
from msaccel.distributed.communicator import Communicator


class Threads(Communicator):
    """Ranks as threads of this process."""

    def __init__(self, rank: int, world_size: int, meet: threading.Barrier, table: list) -> None:
        self.rank, self.world_size, self.meet, self.table = rank, world_size, meet, table

    def all_gather(self, values: np.ndarray) -> np.ndarray:
        self.table[self.rank] = values.copy()
        self.meet.wait(200)
        assert len({(each.shape, each.dtype) for each in self.table}) == 1, "a collective wants equal shapes"
        every = np.stack(self.table)
        self.meet.wait(200)
        return every


def on_ranks(count: int, work: Callable[[Communicator], object]) -> list:
    barrier, table, results = threading.Barrier(count), [None] * count, [None] * count

    def one(rank: int) -> None:
        try:
            results[rank] = work(Threads(rank, count, barrier, table))
        except BaseException:
            barrier.abort()
            raise

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def state(rank: int) -> Arrays:
    return {
        "weights": np.arange(5, dtype=np.float32),
        "moving_mean": np.full((2, 2), rank, np.float32),
        "none refused": np.zeros((0, 2), np.int64),
        "step": np.array(rank // 2, np.int32),
        "sums": np.array([0.1 * rank, np.nan]),
    }


@pytest.mark.parametrize("count", [2, 4])
def test_each_rank_gets_its_own_back(count: int) -> None:
    first, *others = on_ranks(count, lambda comm: gather.gather_state(state(comm.rank), comm))
    assert not any(name.startswith(gather.OF_RANKS) for of_rank in others for name in of_rank), "they do not write"
    differing = [name for name in first if name.startswith(gather.OF_RANKS)]
    own = ["moving_mean", "sums"] if count == 2 else ["moving_mean", "step", "sums"]
    assert differing == [f"{gather.OF_RANKS}{name}" for name in own]
    saved = ResumeState(7, first, {"counters": {"best": float("-inf")}, "text": "é→"})
    for rank, found in enumerate(on_ranks(count, lambda t: gather.broadcast_state(saved if t.is_main else None, t))):
        assert (found.update, found.facts) == (7, saved.facts)
        assert sorted(found.arrays) == sorted(state(rank))
        for name, array in state(rank).items():
            assert found.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(found.arrays[name], array)
            assert found.arrays[name].base is None, "a view would keep the arrays of all ranks in memory"


def test_no_checkpoint_is_none_on_all() -> None:
    assert on_ranks(3, lambda comm: gather.broadcast_state(None, comm)) == [None] * 3
