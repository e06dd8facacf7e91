"""A driver and CUDA packages that are not there: a libcuda.so.1 that says what it is told, packages of empty files."""

import shutil
import subprocess
from pathlib import Path

import pytest

from msaccel.devices.gpu import LIBRARIES

_DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) { fprintf(stderr, "[stub] cuInit\n"); if (INIT < 0) abort(); return INIT; }
int cuDriverGetVersion(int *version) { *version = VERSION; return 0; }
int cuDeviceGetCount(int *count) { *count = CARDS; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, "Stub", length); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)8000000000; return 0; }
/* what MindSpore's plugin asks for by name */
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 8; return 0; }
int cuGetErrorName(int error, const char **name) { *name = "stub"; return 0; }
int cuLaunchKernel(void) { return 999; }
int cuModuleGetFunction(void) { return 999; }
int cuModuleLoadDataEx(void) { return 999; }
int cuModuleUnload(void) { return 999; }
int cuStreamSynchronize(void) { return 999; }
"""


def driver(folder: Path, *, cards: int = 1, version: int = 12040, init: int = 0) -> Path:
    """Compiles a driver and returns its folder; `init` is what cuInit returns, negative for a crash."""
    if not shutil.which("gcc"):
        pytest.skip("there is no gcc to compile a stub driver with")
    source = folder / "libcuda.c"
    source.write_text(_DRIVER)
    values = [f"-DCARDS={cards}", f"-DVERSION={version}", f"-DINIT={init}"]
    library = folder / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", *values, "-o", library, source], check=True)
    return folder


def packages(site: Path, *, without: str = "") -> Path:
    """Lays the CUDA packages, with empty libraries, where `importlib.metadata` finds them."""
    for library, package in LIBRARIES.items():
        if package != without:
            folder = site / "nvidia" / package.removeprefix("nvidia-").removesuffix("-cu11") / "lib"
            folder.mkdir(parents=True, exist_ok=True)
            names = [library, library.replace(".so", "_helper.so"), "__init__.py"]
            for name in names:
                (folder / name).touch()
            described = site / f"{package.replace('-', '_')}-11.8.dist-info"
            described.mkdir(exist_ok=True)
            (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 11.8\n")
            (described / "RECORD").write_text("".join(f"{folder.relative_to(site) / name},,\n" for name in names))
    return site


def toolkit(home: Path, release: str, *, without: str = "") -> Path:
    """Lays a CUDA toolkit, which comes without cuDNN."""
    (home / "bin").mkdir(parents=True)
    (home / "lib64").mkdir()
    nvcc = home / "bin" / "nvcc"
    nvcc.write_text(f'#!/bin/sh\necho "nvcc: NVIDIA"\necho "Cuda compilation tools, release {release}, V{release}.1"\n')
    nvcc.chmod(0o755)
    for library in LIBRARIES:
        if library not in ("libcudnn.so.8", without):
            (home / "lib64" / library).touch()
    if release == "11.1":
        (home / "lib64" / "libnvrtc.so.11.2").rename(home / "lib64" / "libnvrtc.so.11.1")
    return home
