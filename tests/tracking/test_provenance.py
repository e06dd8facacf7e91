"""What a number was measured with."""

from importlib.metadata import distributions

from msaccel.tracking import provenance


def test_all_installed_packages_are_listed_with_their_versions() -> None:
    machine, *packages = provenance.environment().splitlines()
    assert machine.startswith("# ")
    assert set(packages) == {f"{dist.metadata['Name']}=={dist.version}" for dist in distributions()}
