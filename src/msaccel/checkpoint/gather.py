"""Gathers the state of all ranks on the first one, which writes it, and distributes it again.

What is equal on all ranks is kept once, what differs (running statistics, a part's own optimizer) once for each rank.
Comparing digests tells which is which, so nothing has to be declared, and nothing can be declared wrongly.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msaccel.checkpoint.resume_file import Arrays, ResumeState
from msaccel.distributed.communicator import Communicator, digest

OF_RANKS = "of each rank/"  # before the name of an array (ranks, ...) that holds every rank's own


def gather_state(arrays: Arrays, comm: Communicator) -> Arrays:
    """The state of all ranks, on the first one; each gives arrays of the same names and shapes, in the same order."""
    if comm.world_size == 1:
        return arrays
    digests = comm.all_gather(np.array([digest([array]) for array in arrays.values()], np.int64))
    merged: Arrays = {}
    for (name, array), of_ranks in zip(arrays.items(), digests.T, strict=True):
        if (of_ranks == of_ranks[0]).all():
            merged[name] = array
        else:
            gathered = comm.all_gather(array)
            if comm.is_main:
                merged[f"{OF_RANKS}{name}"] = gathered
    return merged


def broadcast_state(resume_state: ResumeState | None, comm: Communicator) -> ResumeState | None:
    """This rank's part of the state that the first rank has read, or None if that is None. Other ranks pass None."""
    if comm.world_size == 1:
        return resume_state
    comm.barrier()  # reading may take longer than a collective waits
    message = _from_first(json.dumps(_announced(resume_state)).encode() if comm.is_main else b"", comm)
    announced: dict[str, Any] | None = json.loads(message)
    if announced is None:
        return None
    arrays: Arrays = {}
    for name, kind, shape in announced["arrays"]:
        value = resume_state.arrays[name] if resume_state else np.zeros(shape, kind)
        if name.startswith(OF_RANKS):
            arrays[name.removeprefix(OF_RANKS)] = [_of_first(own, comm) for own in value][comm.rank]
        else:
            arrays[name] = _of_first(value, comm)
    return ResumeState(announced["update"], arrays, announced["facts"])


def _announced(resume_state: ResumeState | None) -> dict[str, Any] | None:
    if resume_state is None:
        return None
    arrays = [(name, array.dtype.name, array.shape) for name, array in resume_state.arrays.items()]
    return {"update": resume_state.update, "facts": resume_state.facts, "arrays": arrays}


def _of_first(array: NDArray[np.generic], comm: Communicator) -> NDArray[np.generic]:
    """The first rank's array; a view into those of all ranks would keep them in memory."""
    return np.array(comm.all_gather(array)[0]) if array.size else array


def _from_first(text: bytes, comm: Communicator) -> bytes:
    """What the first rank says."""
    length = int(comm.all_gather(np.array([len(text)], np.int64))[0, 0])
    words = np.zeros(-(-length // 4), np.int32)
    if comm.is_main:
        words = np.frombuffer(text.ljust(4 * len(words), b" "), np.int32)
    heard: bytes = comm.all_gather(words)[0].tobytes()
    return heard[:length]
