"""Disks of a test's own: small ones that fill up, and ones that cannot be written."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tracking.storage.servers import MlflowServer


class Disk:
    """A tmpfs of so many kilobytes."""

    def __init__(self, folder: Path, kilobytes: int) -> None:
        self.folder = folder
        folder.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "msaccel-test", str(folder)],
            check=True,
            capture_output=True,
        )

    def again(self, options: str) -> None:
        """With another size, or read-only."""
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.folder)], check=True, capture_output=True)

    def fill(self) -> Path:
        """Takes what room there is."""
        filler = self.folder / "filler"
        with filler.open("wb", buffering=0) as file:
            for size in (65536, 4096, 512):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass
        return filler


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """An MLflow server with a store of its own, for the tests of a file."""
    server = MlflowServer(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Disk]]:
    """Mounts a disk; the test is skipped where that is not allowed."""
    mounted: list[Disk] = []

    def of(kilobytes: int) -> Disk:
        try:
            mounted.append(Disk(tmp_path / f"disk{len(mounted)}", kilobytes))
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("mounting a small disk is not allowed here; run the tests as root to have this one")
        return mounted[-1]

    yield of
    for each in mounted:
        subprocess.run(["umount", "-l", str(each.folder)], check=False, capture_output=True)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder that exists and cannot be written: another disk for root, who may write everywhere else."""
    folder = tmp_path / "read-only"
    if os.getuid():
        folder.mkdir(mode=0o555)
        yield folder
        folder.chmod(0o755)
        return
    try:
        made = Disk(folder, 64)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("root may write everywhere, and mounting a read-only disk is not allowed here")
    made.again("ro")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)
