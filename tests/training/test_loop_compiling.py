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
    rank = SimpleNamespace(
        comm=SimpleNamespace(world_size=2, barrier=barrier), counts=MagicMock(), _compiled={}, metrics=MagicMock()
    )
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


def test_updates_under_way_are_waited_for_before_the_clock_stops() -> None:
    """A GPU may still compute them, and their time counts."""
    calls, built = MagicMock(), MagicMock()
    counts = SimpleNamespace(clock=calls.clock, compiling=MagicMock())
    comm = SimpleNamespace(world_size=1, barrier=MagicMock())
    rank = SimpleNamespace(comm=comm, counts=counts, _compiled={}, metrics=calls.metrics)
    for _ in range(2):
        Training.compile(rank, built, [[batch(4)]], (2,))
    names = [name for name, _, _ in calls.mock_calls if not name.startswith("clock.paused()")]
    assert names == ["metrics.fetch", "clock.paused"], "once: the second time no size is new"


def test_a_rank_without_samples_compiles_what_it_exchanges() -> None:
    """Else it would compile while the others wait for it in a collective, which gives up after a while."""
    built, data = MagicMock(), MagicMock()
    data.of.return_value.batch.side_effect = lambda samples: batch(len(samples))
    counts = SimpleNamespace(epoch=3, clock=MagicMock(), compiling=MagicMock())
    comm = SimpleNamespace(world_size=2, barrier=MagicMock())
    rank = SimpleNamespace(comm=comm, counts=counts, epoch_samples=data, _compiled={}, metrics=MagicMock())
    for _ in range(2):
        Training.compile(rank, built, [[], Elsewhere((4,))], (2,))
    assert [len(call.args[1]) for call in built.compile.call_args_list] == [1]
    data.of.assert_called_once_with(3)


def test_a_virtual_rank_without_samples_needs_no_graph_of_its_own() -> None:
    built, counts = MagicMock(), MagicMock()
    rank = SimpleNamespace(
        comm=SimpleNamespace(world_size=1, barrier=MagicMock()), counts=counts, _compiled={}, metrics=MagicMock()
    )
    Training.compile(rank, built, [[batch(4)], []], (2,))
    assert [len(call.args[1]) for call in built.compile.call_args_list] == [4]
