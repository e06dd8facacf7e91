"""Names of runs: the method, what differs from the defaults, the seed."""

import pytest

from msaccel.config.compose import from_overrides
from msaccel.config.run_name import run_name

NAMES = {
    "": "baseline s0",
    "seed=3 optimizer.lr=0.1": "baseline lr=0.1 s3",
    "optimizer.lr=0.01": "baseline s0",
    "accel=accum accel.accum.steps=8": "accum steps=8 s0",
    "accel=[clip,accum] train.batch_size=64 device=cpu4": "accum+clip batch_size=64 cpu4 s0",
    # A recipe is a choice of keys: what it changes is what two runs of an experiment differ by.
    "experiment=grad_accum_lenet": "accum reduction=sum s0",
    # Loss scaling has a baseline of its own, so it is none.
    "loss_scale.mode=dynamic precision=fp16": "none precision=fp16 loss_scale.mode=dynamic s0",
    # Options that stand in the name of the experiment are not repeated.
    "model=mlp optimizer=adam schedule=cosine": "baseline adam cosine s0",
    "model=mlp tracking.experiment=mine": "baseline mlp s0",
    # Two keys end in `epochs`.
    "accel=dimreduce train.epochs=6": "dimreduce train.epochs=6 s0",
    "train.max_updates=9 model.init=normal(0.1) data.limit_train=500 precision=fp16 optimizer.momentum=0.8": (
        "baseline momentum=0.8 max_updates=9 precision=fp16 model.init=normal(0.1) … s0"
    ),
    # Where and how a job runs is not told.
    "tracking.every=7 checkpoint.keep=1 data.cache=/somewhere sweep.retries=2 device.timeout_s=9": "baseline s0",
}


@pytest.mark.parametrize("overrides", NAMES)
def test_what_a_run_is_called(overrides: str) -> None:
    assert run_name(from_overrides(overrides.split())) == NAMES[overrides]


def test_a_long_value_is_cut() -> None:
    config = from_overrides(["schedule=step", f"schedule.milestones=[{','.join(['0.5'] * 50)}]"])
    assert run_name(config) == "baseline step milestones=[0.5, 0.5, 0.5, 0.5, 0.5… s0"
