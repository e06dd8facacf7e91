"""Which keys the overrides of a command line set."""

import pytest

from msaccel.config.overrides import keys_set_by


@pytest.mark.parametrize(
    ("override", "keys"),
    [
        ("optimizer=adam", ["optimizer"]),
        ("optimizer={lr: 0.1, eps: 1e-8}", ["optimizer.lr", "optimizer.eps"]),
        ("++accel.accum={steps: 4}", ["accel.accum.steps"]),
        ("accel=[accum,clip]", ["accel"]),
        ("~train.max_updates", ["train.max_updates"]),
        ("data.root='/a (b)'", ["data.root"]),
        ("data.root=/a (b)", ["data.root"]),  # as a resumed job records it
        ("data.cache=~/x", ["data.cache"]),
    ],
)
def test_keys(override: str, keys: list[str]) -> None:
    assert list(keys_set_by([override])) == keys
