"""No bytes make a reader raise what it does not document, hang, or take more memory than it may.

The short variants take some 30 seconds in all. `soak` gives each target ten minutes; `make fuzz` is guided by coverage.
"""

from __future__ import annotations

import os
import resource
import time
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .mutate import mutated
from .targets import TARGETS

EXAMPLES = {"image_folder": 120, "checkpoint": 60, "configuration": 25}
MAX_SECONDS = 20.0  # for one input; each takes milliseconds
MEMORY = 64_000_000  # bytes that a short input may make a reader hold
SECONDS = float(os.environ.get("MSACCEL_FUZZ_SECONDS", "600"))

pytestmark = pytest.mark.usefixtures("graph_mode")


@pytest.mark.parametrize("name", TARGETS)
def test_right_inputs_are_read(name: str) -> None:
    target, seeds = TARGETS[name]
    for seed in seeds():
        target(seed)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs(name: str) -> None:
    target, seeds = TARGETS[name]
    right = seeds()

    @settings(max_examples=EXAMPLES.get(name, 150), deadline=None, database=None)
    @given(random=st.randoms(use_true_random=False), seed=st.sampled_from(right))
    def any_of_them(random: Random, seed: bytes) -> None:
        target(mutated(seed, random))

    tracemalloc.start()
    try:
        any_of_them()
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_for_long(name: str) -> None:
    target, seeds = TARGETS[name]
    right, until, runs, slowest = seeds(), time.monotonic() + SECONDS, 0, 0.0
    while time.monotonic() < until:
        random = Random(runs)
        content = mutated(random.choice(right), random, most=12)
        begun = time.monotonic()
        try:
            target(content)
        except BaseException:
            print(f"{name}: input {runs}: {content!r}")
            raise
        slowest, runs = max(slowest, time.monotonic() - begun), runs + 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{name}: {runs} inputs in {SECONDS:.0f} s, the slowest {slowest:.2f} s, peak memory {peak / 1e6:.0f} MB")
    assert slowest < MAX_SECONDS and peak < 2_000_000_000
