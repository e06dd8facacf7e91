"""Which sizes of micro-batches the loop has compiled, on one of several real ranks."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np

from msaccel.step.update import Elsewhere
from msaccel.training.loop import Training


def batch(size: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((size, 2), np.float32), np.zeros(size, np.int32)


def test_a_size_that_only_another_rank_has_had_is_compiled_when_it_comes_here() -> None:
    """Ranks wait for each other with their clocks paused, so each must see that a size is new to one of them."""
    built, barrier = MagicMock(), MagicMock()
    rank = SimpleNamespace(comm=SimpleNamespace(world_size=2, barrier=barrier), counts=MagicMock(), _compiled={})
    for windows, here, waits in (
        ([[batch(4)], Elsewhere((4, 2))], [4], 1),
        ([[batch(4)], Elsewhere((2,))], [], 1),
        ([[batch(4), batch(2)], Elsewhere((4,))], [2], 2),
        ([[batch(2)], Elsewhere((3,))], [], 3),
        ([[batch(2)], Elsewhere((3,))], [], 3),
    ):
        built.reset_mock()
        Training.compile(rank, built, windows, (2,))
        assert [len(call.args[1]) for call in built.compile.call_args_list] == here
        assert barrier.call_count == waits
