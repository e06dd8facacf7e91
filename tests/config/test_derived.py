"""What a configuration is called."""

import pytest

from msaccel.config.compose import from_overrides
from msaccel.config.derived import summary


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ((), "lenet on mnist for 3 epochs"),
        (("model=mlp", "train.epochs=1"), "mlp on mnist for 1 epoch"),
        (("train.epochs=null", "train.max_updates=1000"), "lenet on mnist for 1,000 updates"),
        (("train.max_updates=50",), "lenet on mnist for 3 epochs or 50 updates"),
    ],
)
def test_a_job_is_summed_up_by_network_data_and_budget(overrides: tuple[str, ...], said: str) -> None:
    assert summary(from_overrides(overrides)) == said
