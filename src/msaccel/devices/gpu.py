"""The environment in which MindSpore's plain wheel accepts the target GPU, set before Python starts.

The wheel holds plugins for CUDA 11.1 and 11.6. As it is imported it asks `$CUDA_HOME/bin/nvcc --version` which to take,
and looks for the CUDA libraries on the library path. A toolkit has both. Where there is none, the libraries come from
the package index (`pip install -e '.[gpu]'`), and a folder of links takes the toolkit's place:

    lib64/      a link to every shared library of the packages
    bin/nvcc    a script that names release 11.6 and compiles nothing

MindSpore is only looked for here, never imported: the process that launches jobs stays light and free of CUDA.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata, util
from pathlib import Path

from msaccel.errors import UserError
from msaccel.files import expand_user, locked

INSTALL = "pip install -e '.[gpu]' -c constraints.txt"
# What the plugin loads, and the package that brings it.
LIBRARIES = {
    "libcudart.so.11.0": "nvidia-cuda-runtime-cu11",
    "libcublas.so.11": "nvidia-cublas-cu11",
    "libcudnn.so.8": "nvidia-cudnn-cu11",
    "libcufft.so.10": "nvidia-cufft-cu11",
    "libcurand.so.10": "nvidia-curand-cu11",
    "libcusolver.so.11": "nvidia-cusolver-cu11",
    "libcusparse.so.11": "nvidia-cusparse-cu11",
    "libnvrtc.so.11.2": "nvidia-cuda-nvrtc-cu11",
}
CUDNN = "libcudnn.so.8"
# Releases of a toolkit and the plugin that MindSpore takes for each. 11.2 to 11.5 get the plugin of 11.1 too, whose
# libnvrtc.so.11.1 they lack.
PLUGINS = {"11.6": "11.6", "11.7": "11.6", "11.8": "11.6", "11.1": "11.1"}
TOOLKITS = ("/usr/local/cuda-11.6", "/usr/local/cuda-11.1", "/usr/local/cuda")
SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib")
# Code for chips newer than sm_86 is compiled at first use and kept: the most that the driver keeps.
CACHE_BYTES = 4 * 2**30
# MindSpore warns "cannot find cuda libs" unless a file's name tells the runtime's whole version.
_RUNTIME_NAME = "libcudart.so.11.6.55"
_NVCC = """\
#!/bin/sh
# Written by msaccel in place of a CUDA toolkit: MindSpore picks its plugin by this answer.
case "$1" in
--version*) echo "Cuda compilation tools, release 11.6, V11.6.124" ;;
*) echo "this nvcc takes the place of a CUDA toolkit and compiles nothing" >&2; exit 1 ;;
esac
"""


@dataclass(frozen=True)
class Toolkit:
    """An installed CUDA toolkit, or the folder of links that takes its place."""

    home: Path
    release: str
    folders: tuple[Path, ...]

    @property
    def plugin(self) -> str:
        return PLUGINS[self.release]

    def lacking(self) -> list[str]:
        """The libraries that are neither in it nor where the system keeps its own."""
        path = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
        folders = [*self.folders, *map(Path, path), *map(Path, SYSTEM)]
        wanted = [
            name.replace("nvrtc.so.11.2", "nvrtc.so.11.1") if self.plugin == "11.1" else name for name in LIBRARIES
        ]
        return [name for name in wanted if not any((folder / name).exists() for folder in folders)]


def environment(base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables a process needs at its start to train on a GPU; the links are built where they are needed.

    Args:
        base: the environment they are added to.

    Raises:
        UserError: there is no toolkit and packages are missing, MindSpore has no GPU plugin, or the cache
            cannot be written.
    """
    found = toolkit() or linked()
    if not has_plugin(found.plugin):
        raise UserError(f"this MindSpore has no plugin for CUDA {found.plugin}; install its wheel for Linux on x86_64.")
    plugins = plugin_folder()
    assert plugins
    libraries = [plugins.parent, plugins, plugins / "gpu", plugins / f"gpu{found.plugin}", *found.folders]
    return {
        "CUDA_HOME": str(found.home),
        "LD_LIBRARY_PATH": _prepended(libraries, base.get("LD_LIBRARY_PATH")),
        "PATH": _prepended([found.home / "bin"], base.get("PATH")),
        "CUDA_CACHE_MAXSIZE": base.get("CUDA_CACHE_MAXSIZE") or str(CACHE_BYTES),
        # Else a new chip's driver compiles all 407 modules of the plugin's kernels as the job starts.
        "CUDA_MODULE_LOADING": base.get("CUDA_MODULE_LOADING") or "LAZY",
    }


def _prepended(folders: list[Path], rest: str | None) -> str:
    return os.pathsep.join([*map(str, folders), *([rest] if rest else [])])


def plugin_folder() -> Path | None:
    """Where MindSpore keeps its plugins, or None without MindSpore."""
    spec = util.find_spec("mindspore")
    return Path(spec.origin).parent / "lib" / "plugin" if spec and spec.origin else None


def has_plugin(version: str) -> bool:
    """Whether this MindSpore was built for a CUDA version."""
    folder = plugin_folder()
    return folder is not None and (folder / f"libmindspore_gpu.so.{version}").exists()


def toolkit() -> Toolkit | None:
    """The first installed toolkit that has all that MindSpore loads."""
    return next((found for found in toolkits() if not found.lacking()), None)


def toolkits() -> Iterator[Toolkit]:
    """The installed toolkits of a release that MindSpore has a plugin for, that of `$CUDA_HOME` first.

    A toolkit comes without cuDNN: if the cuDNN package is installed, its folder is added after the toolkit's.
    """
    for home in dict.fromkeys(filter(None, (os.environ.get("CUDA_HOME"), *TOOLKITS))):
        release = nvcc_release(Path(home))
        if release in PLUGINS:
            yield Toolkit(Path(home), release, (Path(home, "lib64"), *package_folders().get(LIBRARIES[CUDNN], ())))


@cache
def nvcc_release(home: Path) -> str:
    """The release that a toolkit's compiler names, such as 11.6; empty where there is none."""
    try:
        said = subprocess.run([home / "bin" / "nvcc", "--version"], capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"Cuda compilation tools, release (\d+\.\d+),", said)
    return found[1] if found else ""


def package_folders() -> dict[str, tuple[Path, ...]]:
    """The installed CUDA packages, each with its folders of shared libraries."""
    found = {}
    for package in LIBRARIES.values():
        try:
            files = metadata.distribution(package).files or []
        except metadata.PackageNotFoundError:
            continue
        libraries = [file for file in files if re.search(r"\.so(\.\d+)*$", file.name)]
        found[package] = tuple(sorted({Path(str(file.locate())).parent for file in libraries}))
    return found


def missing_packages() -> list[str]:
    """The packages to install where there is no toolkit."""
    installed = package_folders()
    return [
        package
        for library, package in LIBRARIES.items()
        if not any((folder / library).exists() for folder in installed.get(package, ()))
    ]


def linked() -> Toolkit:
    """The folder of links for the installed packages, built once; several processes may ask at once.

    Raises:
        UserError: packages are missing, or the cache cannot be written.
    """
    if lacking := missing_packages():
        raise UserError(f"there is no CUDA 11.6 toolkit here and no {', '.join(lacking)}; write {INSTALL}.")
    folders = [folder for folders in package_folders().values() for folder in folders]
    libraries = {file.name: file for folder in folders for file in sorted(folder.glob("*.so*"))}
    libraries[_RUNTIME_NAME] = libraries["libcudart.so.11.0"]
    cache_folder = expand_user(os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel")).absolute()
    home = cache_folder / "cuda" / _name(libraries)
    if not _whole(home, libraries):
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
            with locked(home.parent / ".lock"):
                if not _whole(home, libraries):
                    _build(home, libraries)
        except OSError as error:
            raise UserError(
                f"MSACCEL_CACHE={cache_folder} cannot be written ({error.strerror}); give another folder."
            ) from error
    return Toolkit(home, "11.6", (home / "lib64",))


def _name(libraries: Mapping[str, Path]) -> str:
    """A folder name that is unique to these versions of the packages at this place."""
    versions = [f"{package} {metadata.version(package)}" for package in LIBRARIES.values()]
    text = "\n".join([*versions, *map(str, libraries.values()), _NVCC])
    return f"11.6-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _whole(home: Path, libraries: Mapping[str, Path]) -> bool:
    return os.access(home / "bin" / "nvcc", os.X_OK) and all((home / "lib64" / name).exists() for name in libraries)


def _build(home: Path, libraries: Mapping[str, Path]) -> None:
    """Builds the folder beside its place and moves it there in one step; the caller holds the lock."""
    with tempfile.TemporaryDirectory(dir=home.parent) as work:
        built = Path(work, "built")
        (built / "lib64").mkdir(parents=True)
        (built / "bin").mkdir()
        for name, library in libraries.items():
            (built / "lib64" / name).symlink_to(library)
        nvcc = built / "bin" / "nvcc"
        nvcc.write_text(_NVCC)
        nvcc.chmod(0o755)
        if home.exists():
            os.replace(home, Path(work, "damaged"))
        os.replace(built, home)
