"""State dicts of components: arrays by name, and setting parameters from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from mindspore import Parameter, Tensor, ops
from numpy.typing import NDArray

from msaccel.errors import CheckpointError

State = dict[str, NDArray[np.generic]]


def by_name(parameters: Iterable[Parameter]) -> dict[str, Parameter]:
    """Parameters by their names; duplicates count once."""
    return {parameter.name: parameter for parameter in parameters}


def to_arrays(parameters: Iterable[Parameter]) -> State:
    """The values of parameters by their names, which must differ."""
    return {parameter.name: parameter.asnumpy() for parameter in parameters}


def assign(parameters: Iterable[Parameter], state: State) -> None:
    """Sets parameters to the values under their names; what else the state holds is left alone.

    Raises:
        CheckpointError: a value is missing, or of another shape or type. Nothing is set then.
    """
    wanted = list(parameters)
    set_values(wanted, {p.name: array_like(state, p.name, p.asnumpy()) for p in wanted})


def set_values(parameters: Iterable[Parameter], state: State) -> None:
    """Sets parameters to the values under their names, which are known to be of their shapes and types."""
    for parameter in parameters:
        # Not set_data: a graph with control flow that has run once would keep using the old memory.
        ops.assign(parameter, Tensor(state[parameter.name]))


@contextmanager
def values_restored(parameters: Iterable[Parameter]) -> Iterator[None]:
    """Restores the values of the parameters after the block, whatever they are set to inside it."""
    held = list(parameters)
    values = {name: value.copy() for name, value in to_arrays(held).items()}
    try:
        yield
    finally:
        set_values(held, values)


def array_like(state: State, name: str, like: NDArray[np.generic]) -> NDArray[np.generic]:
    """An array of the state, of the shape and type of another.

    Raises:
        CheckpointError: it is missing or of another kind.
    """
    found = state.get(name)
    if found is None or found.shape != like.shape or found.dtype != like.dtype:
        what = "is missing" if found is None else f"is {found.dtype} {found.shape}"
        raise CheckpointError(
            f"the resume checkpoint is of another job: {name} should be {like.dtype} {like.shape} and {what}; "
            "start a new job."
        )
    return found


def add_prefix(prefix: str, state: State) -> State:
    """Puts a prefix before each name: a component's own place in the state of the job."""
    return {f"{prefix}/{name}": value for name, value in state.items()}


def with_prefix(prefix: str, state: State) -> State:
    """The entries under a prefix, without it: what `add_prefix` was given."""
    return {name.removeprefix(f"{prefix}/"): value for name, value in state.items() if name.startswith(f"{prefix}/")}
