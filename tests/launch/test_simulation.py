"""Which devices are simulated where they are missing, and which are refused."""

import pytest

from msaccel.launch import simulation

MISSING = ["NVIDIA's driver is not installed; install it", "CUDA 11 is not installed; install it"]


@pytest.fixture(autouse=True)
def no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation.doctor, "missing", lambda device: [] if device.target == "CPU" else MISSING)


@pytest.mark.parametrize("simulate", ["auto", "never"])
@pytest.mark.parametrize("name", ["gpu", "ascend1"])
def test_a_single_rank_is_refused_with_the_device_that_works(composed, name: str, simulate: str) -> None:
    (said,) = simulation.resolve(composed(f"device={name}", f"device.simulate={simulate}").device).refusals
    assert said.startswith(f"device={name} cannot be used here: NVIDIA's driver is not installed; install it (1 more: ")
    assert said.endswith("; use device=cpu.")


@pytest.mark.parametrize(("name", "simulate"), [("gpu", "always"), ("ascend8", "auto"), ("ascend16", "auto")])
def test_what_is_simulated(composed, name: str, simulate: str) -> None:
    resolved = simulation.resolve(composed(f"device={name}", f"device.simulate={simulate}").device)
    assert not resolved.refusals and resolved.device.simulated
    assert bool(resolved.warnings) == (simulate == "auto")


def test_several_ranks_that_must_be_real(composed) -> None:
    (said,) = simulation.resolve(composed("device=ascend8", "device.simulate=never").device).refusals
    assert said.endswith("or write device.simulate=auto.")


def test_what_is_there_is_used(composed) -> None:
    resolved = simulation.resolve(composed("device=cpu").device)
    assert not resolved.refusals and not resolved.device.simulated
