"""What a part of a job keeps, as arrays by name, and takes back when the job is resumed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from mindspore import Parameter, Tensor, ops
from numpy.typing import NDArray

from msaccel.errors import CheckpointError

State = dict[str, NDArray[np.generic]]


def values(parameters: Iterable[Parameter]) -> State:
    """The values of parameters by their names, which must differ."""
    return {parameter.name: parameter.asnumpy() for parameter in parameters}


def assign(parameters: Iterable[Parameter], state: State) -> None:
    """Sets parameters to the values under their names; what else the state holds is left alone.

    Raises:
        CheckpointError: a value is missing, or of another shape or type. Nothing is set then.
    """
    wanted = [(parameter, taken(state, parameter.name, parameter.asnumpy())) for parameter in parameters]
    for parameter, value in wanted:
        # Not set_data: a graph with control flow that has run once would go on with the memory it knows.
        ops.assign(parameter, Tensor(value))


def taken(state: State, name: str, like: NDArray[np.generic]) -> NDArray[np.generic]:
    """An array of the state, of the shape and type of another.

    Raises:
        CheckpointError: it is missing or of another kind.
    """
    found = state.get(name)
    if found is None or found.shape != like.shape or found.dtype != like.dtype:
        what = "is missing" if found is None else f"is {found.dtype} {found.shape}"
        raise CheckpointError(
            f"the resume checkpoint is of another job: {name} should be {like.dtype} {like.shape} and {what}; "
            "start the job anew."
        )
    return found


def below(prefix: str, state: State) -> State:
    """Puts a prefix before each name: a part's own place in the state of the job."""
    return {f"{prefix}/{name}": value for name, value in state.items()}


def under(prefix: str, state: State) -> State:
    """What `below` was given."""
    return {name.removeprefix(f"{prefix}/"): value for name, value in state.items() if name.startswith(f"{prefix}/")}
