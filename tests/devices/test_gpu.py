"""The environment for MindSpore's GPU plugin: a toolkit where there is one, else links to packages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from msaccel.devices import gpu, nvidia
from msaccel.errors import UserError

from . import stub


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without CUDA of its own, and a MindSpore with both plugins."""
    for name in ("CUDA_HOME", "LD_LIBRARY_PATH", "CUDA_CACHE_MAXSIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MSACCEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gpu, "TOOLKITS", ())
    monkeypatch.setattr(gpu, "SYSTEM", ())
    plugins = tmp_path / "mindspore" / "lib" / "plugin"
    plugins.mkdir(parents=True)
    for version in ("11.1", "11.6"):
        (plugins / f"libmindspore_gpu.so.{version}").touch()
    monkeypatch.setattr(gpu, "plugin_folder", lambda: plugins)
    gpu.nvcc_release.cache_clear()
    nvidia.query.cache_clear()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the fake packages, which come before real ones."""
    folder = stub.packages(tmp_path / "site")
    monkeypatch.syspath_prepend(folder)
    return folder


def test_packages_are_linked_into_one_folder(site: Path, tmp_path: Path) -> None:
    added = gpu.environment({"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/opt/lib"})
    home = Path(added["CUDA_HOME"])
    assert home.parent == tmp_path / "cache" / "cuda"
    links = {link.name: link for link in (home / "lib64").iterdir()}
    for library in gpu.LIBRARIES:
        helper = library.replace(".so", "_helper.so")
        assert links[library].resolve().is_relative_to(site) and links[helper].resolve().is_relative_to(site)
    assert not any(name.endswith(".py") for name in links)
    plugins = tmp_path / "mindspore" / "lib" / "plugin"
    folders = [plugins.parent, plugins, plugins / "gpu", plugins / "gpu11.6", home / "lib64", "/opt/lib"]
    assert added["LD_LIBRARY_PATH"].split(":") == list(map(str, folders))
    assert added["PATH"].split(":") == [str(home / "bin"), "/usr/bin"]
    assert added["CUDA_CACHE_MAXSIZE"] == str(4 * 2**30)
    assert added["CUDA_MODULE_LOADING"] == "LAZY"
    assert added.keys() == {"CUDA_HOME", "LD_LIBRARY_PATH", "PATH", "CUDA_CACHE_MAXSIZE", "CUDA_MODULE_LOADING"}


def test_what_the_user_set_stays(site: Path) -> None:
    added = gpu.environment({"CUDA_CACHE_MAXSIZE": "1000", "CUDA_MODULE_LOADING": "EAGER"})
    assert (added["CUDA_CACHE_MAXSIZE"], added["CUDA_MODULE_LOADING"]) == ("1000", "EAGER")
    assert not added["LD_LIBRARY_PATH"].endswith(":"), "an empty entry would mean the current folder"


@pytest.mark.parametrize("argument", ["--version", "--version | grep release"])
def test_nvcc_answers_the_two_questions_of_mindspore(site: Path, argument: str) -> None:
    nvcc = gpu.linked().home / "bin" / "nvcc"
    said = subprocess.run([nvcc, argument], capture_output=True, text=True, check=True).stdout
    assert said == "Cuda compilation tools, release 11.6, V11.6.124\n"
    assert subprocess.run([nvcc, "kernel.cu"], capture_output=True).returncode == 1


def test_the_runtime_has_a_name_that_tells_its_version(site: Path) -> None:
    names = [path.name for path in (gpu.linked().home / "lib64").glob("libcudart.so.*.*.*")]
    assert names == ["libcudart.so.11.6.55"], "MindSpore warns without it"


def test_the_folder_is_built_once_and_anew_for_other_versions(site: Path) -> None:
    first = gpu.linked().home
    built = first.stat().st_ino
    assert gpu.linked().home.stat().st_ino == built
    metadata = site / "nvidia_cudnn_cu11-11.8.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("11.8", "11.9"))
    assert gpu.linked().home != first


@pytest.mark.parametrize("damage", ["link", "nvcc"])
def test_a_damaged_folder_is_built_anew(site: Path, damage: str) -> None:
    home = gpu.linked().home
    (home / ("lib64/libcudnn.so.8" if damage == "link" else "bin/nvcc")).unlink()
    assert gpu.linked().home == home
    assert (home / "lib64" / "libcudnn.so.8").exists() and (home / "bin" / "nvcc").exists()
    assert [path.name for path in home.parent.iterdir() if path.name != ".lock"] == [home.name]


def test_several_processes_build_it_at_once(site: Path) -> None:
    code = "from msaccel.devices.gpu import linked; print(linked().home)"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(4)]
    said = {process.communicate(timeout=400)[0].strip() for process in started}
    assert [process.returncode for process in started] == [0] * 4
    assert said == {str(gpu.linked().home)}


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "package_folders", lambda: {})
    with pytest.raises(UserError, match=r"no nvidia-cuda-runtime-cu11, .*; write pip install -e '\.\[gpu\]'"):
        gpu.environment({})


def test_a_cache_that_cannot_be_written_is_said(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MSACCEL_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"MSACCEL_CACHE=.*file cannot be written .*; give another folder"):
        gpu.linked()


def test_a_mindspore_without_the_plugin_is_said(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "plugin_folder", lambda: None)
    with pytest.raises(UserError, match=r"no plugin for CUDA 11\.6; install its wheel"):
        gpu.environment({})


@pytest.mark.parametrize(("release", "plugin"), [("11.6", "11.6"), ("11.8", "11.6"), ("11.1", "11.1")])
def test_a_real_toolkit_comes_first(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, plugin: str
) -> None:
    home = stub.toolkit(tmp_path / "cuda", release)
    monkeypatch.setenv("CUDA_HOME", str(home))
    added = gpu.environment({})
    assert added["CUDA_HOME"] == str(home)
    folders = added["LD_LIBRARY_PATH"].split(":")
    assert folders[3].endswith(f"/gpu{plugin}") and folders[4] == f"{home}/lib64"
    assert folders[5] == str(site / "nvidia" / "cudnn" / "lib"), "cuDNN, which a toolkit lacks, from its package"
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("release", ["10.2", "11.4", "12.4"])
def test_a_toolkit_of_another_release_is_passed_over(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(gpu, "TOOLKITS", (str(stub.toolkit(tmp_path / "cuda", release)),))
    assert gpu.toolkit() is None
    assert gpu.environment({})["CUDA_HOME"].startswith(str(tmp_path / "cache"))


def test_an_incomplete_toolkit_is_passed_over(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = stub.toolkit(tmp_path / "cuda", "11.6", without="libcufft.so.10")
    monkeypatch.setattr(gpu, "TOOLKITS", (str(home),))
    assert [found.lacking() for found in gpu.toolkits()] == [["libcufft.so.10"]]
    assert gpu.toolkit() is None


def test_the_driver_tells_its_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stub.driver(tmp_path, cards=2)))
    found = nvidia.query()
    assert not found.error and found.cuda == (12, 4)
    assert found.cards == (nvidia.NvidiaGpu("Stub", 8_000_000_000),) * 2


@pytest.mark.parametrize(("init", "said"), [(100, "cuInit fails with error 100"), (-1, "ends with code -6")])
def test_a_driver_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, init: int, said: str) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stub.driver(tmp_path, init=init)))
    assert said in nvidia.query().error


_COMPUTE = """
import os, sys
from msaccel.devices import gpu
if sys.argv[1] == "start":
    assert "mindspore" not in sys.modules
    os.environ |= gpu.environment()
    os.environ["LD_LIBRARY_PATH"] += ":" + sys.argv[2]
    os.execv(sys.executable, [sys.executable, sys.argv[0], "compute"])
import mindspore as ms, numpy as np
ms.set_device("GPU")
print("accepted", flush=True)
ms.ops.add(ms.Tensor(np.ones(3, np.float32)), 1).asnumpy()
"""


@pytest.mark.slow
def test_mindspore_goes_as_far_as_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real plugin and libraries, stub driver: the device is accepted, and the first operator asks the driver."""
    if missing := gpu.missing_packages():
        pytest.skip(f"{', '.join(missing)} are not installed; write {gpu.INSTALL}")
    (tmp_path / "compute.py").write_text(_COMPUTE)
    command = [sys.executable, tmp_path / "compute.py", "start", stub.driver(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert ended.stdout == "accepted\n", ended.stderr
    assert ended.returncode == 1 and "[stub] cuInit" in ended.stderr and "Cuda error" in ended.stderr
    assert "cannot find" not in ended.stderr.lower(), "nothing is missed before the driver"
