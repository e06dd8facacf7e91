"""The doctor: each thing that is missing one line with its mend, on machines made of folders and on this one."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from msaccel import schema
from msaccel.cli.commands import doctor as command
from msaccel.config.groups import GROUPS
from msaccel.devices import doctor, gpu, machine, nvidia
from msaccel.devices.doctor import MISSING, OK, WARNING, Finding
from msaccel.devices.nvidia import NvidiaDriver, NvidiaGpu
from msaccel.kernels import processor
from msaccel.schema import DeviceSettings

from . import stub

Composed = Callable[..., schema.Config]
MEMINFO = "MemTotal: 8000000 kB\nMemFree: 100 kB\nMemAvailable: 4000000 kB\n"


@pytest.fixture
def device(composed: Composed) -> Callable[..., DeviceSettings]:
    """A preset with some keys changed."""

    def changed(name: str, **keys: object) -> DeviceSettings:
        return replace(composed(f"device={name}").device, **keys)  # type: ignore[arg-type]

    return changed


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of CUDA or Ascend in the environment, both plugins in MindSpore, no driver."""
    for name in ("CUDA_HOME", "LD_LIBRARY_PATH", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpu, "TOOLKITS", ())
    monkeypatch.setattr(gpu, "SYSTEM", ())
    plugins = tmp_path / "plugin"
    plugins.mkdir()
    for name in ("libmindspore_gpu.so.11.6", "libmindspore_ascend.so.2"):
        (plugins / name).touch()
    monkeypatch.setattr(gpu, "plugin_folder", lambda: plugins)
    monkeypatch.setattr(nvidia, "query", lambda: NvidiaDriver("libcuda.so.1: not here"))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def levels(found: list[Finding]) -> list[str]:
    return [finding.level for finding in found]


# memory


@pytest.mark.parametrize(
    ("files", "total", "free"),
    [
        ({}, 8_192_000_000, 4_096_000_000),
        (
            {
                "proc/self/cgroup": "0::/a\n",
                "sys/fs/cgroup/a/memory.max": "2000000000\n",
                "sys/fs/cgroup/a/memory.current": "900000000\n",
                "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 400000000\n",
            },
            2_000_000_000,
            1_500_000_000,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/a\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "3000000000\n",
                "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "1000000000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000000000\n",
            },
            3_000_000_000,
            2_000_000_000,
        ),
    ],
    ids=["no limit", "version 2", "version 1"],
)
def test_memory_is_what_this_process_may_have(tmp_path: Path, files: dict[str, str], total: int, free: int) -> None:
    root = write(tmp_path, {"proc/meminfo": MEMINFO, **files})
    assert machine.memory(root) == machine.Memory(total, free)


def test_memory_of_a_machine_that_does_not_tell_is_no_finding(
    tmp_path: Path, device: Callable[..., DeviceSettings]
) -> None:
    assert machine.memory(tmp_path) is None
    assert len(doctor.target(device("cpu"), tmp_path)) == 1


@pytest.mark.parametrize(
    ("preset", "keys", "cores", "level", "said"),
    [
        ("cpu4", {}, 4, OK, "4 cores for 4 ranks of 1 thread"),
        ("cpu4", {}, 2, WARNING, "times mean little; take fewer ranks, or a machine of 4 cores"),
        ("cpu4", {"threads": 4}, 4, WARNING, "write device.threads=1, or a machine of 16 cores"),
        ("cpu2x2", {}, 2, WARNING, "2 cores for 4 ranks"),
        ("cpu2x2", {"server_rank": 1}, 2, OK, "2 cores for 2 ranks"),
        ("cpu", {}, 1, WARNING, "1 core for 1 rank of 2 threads"),
    ],
)
def test_cores_too_few_are_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    device: Callable[..., DeviceSettings],
    preset: str,
    keys: dict[str, int],
    cores: int,
    level: str,
    said: str,
) -> None:
    monkeypatch.setattr(doctor, "cores", lambda root: cores)
    found = doctor.target(device(preset, **keys))[0]
    assert found.level == level and said in str(found)


@pytest.mark.parametrize(("total", "free", "level"), [(8, 4, OK), (8, 1, WARNING), (2, 2, MISSING)])
def test_memory_too_small_for_ever_makes_a_device_unusable(
    monkeypatch: pytest.MonkeyPatch, device: Callable[..., DeviceSettings], total: int, free: int, level: str
) -> None:
    monkeypatch.setattr(machine, "memory", lambda root: machine.Memory(total * 10**9, free * 10**9))
    found = doctor.target(device("cpu4"))[1]
    assert found.level == level and "2.4 GB needed" in found.what
    assert bool(doctor.missing(device("cpu4"))) == (level == MISSING)


# GPU


def test_what_a_gpu_lacks_is_a_line_for_each_mend(device: Callable[..., DeviceSettings]) -> None:
    driver, packages = doctor.missing(device("gpu"))
    assert driver.startswith("no usable NVIDIA driver (libcuda.so.1: not here); install NVIDIA's driver")
    lacking = ", ".join(gpu.LIBRARIES.values())
    assert packages == f"neither a CUDA 11.6 toolkit nor {lacking}; write {gpu.INSTALL}."


def test_a_gpu_with_all_parts_is_usable_and_said_to_be_tested_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Callable[..., DeviceSettings]
) -> None:
    monkeypatch.syspath_prepend(stub.packages(tmp_path / "site"))
    monkeypatch.setattr(nvidia, "query", lambda: NvidiaDriver("", (12, 4), (NvidiaGpu("H100", 80 * 10**9),)))
    assert doctor.missing(device("gpu")) == []
    found = list(map(str, doctor.target(device("gpu"))))
    assert "card 0: H100, 80 GB" in found and "nvidia-cudnn-cu11 11.8" in found
    assert any("tested in part" in text for text in found)
    assert doctor.missing(device("gpu", ranks_per_server=2)) == [
        "1 GPU card for 2 ranks; look at CUDA_VISIBLE_DEVICES, or write device.ranks_per_server=1."
    ]


def test_a_toolkit_takes_the_place_of_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Callable[..., DeviceSettings]
) -> None:
    home = stub.toolkit(tmp_path / "cuda", "11.6")
    monkeypatch.setattr(gpu, "TOOLKITS", (str(home),))
    monkeypatch.setattr(gpu, "SYSTEM", (str(tmp_path),))
    assert f"the CUDA toolkit in {home} lacks libcudnn.so.8" in "\n".join(map(str, doctor.target(device("gpu"))))
    (tmp_path / "libcudnn.so.8").touch()
    assert f"CUDA toolkit 11.6 in {home}" in map(str, doctor.target(device("gpu")))
    assert len(doctor.missing(device("gpu"))) == 1, "the driver alone"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            NvidiaDriver("", (10, 2), (NvidiaGpu("K80", 1),)),
            "runs CUDA up to 10.2, not 11; install a newer NVIDIA driver",
        ),
        (NvidiaDriver("", (12, 4), ()), "0 GPU cards for 1 rank; look at CUDA_VISIBLE_DEVICES."),
    ],
)
def test_a_driver_that_will_not_do(
    monkeypatch: pytest.MonkeyPatch, device: Callable[..., DeviceSettings], asked: NvidiaDriver, said: str
) -> None:
    monkeypatch.setattr(nvidia, "query", lambda: asked)
    assert said in "\n".join(doctor.missing(device("gpu")))


def test_a_mindspore_without_plugins(monkeypatch: pytest.MonkeyPatch, device: Callable[..., DeviceSettings]) -> None:
    monkeypatch.setattr(gpu, "plugin_folder", lambda: None)
    assert any("no plugin for CUDA 11.6; install" in text for text in doctor.missing(device("gpu")))
    assert any("no plugin for Ascend; install" in text for text in doctor.missing(device("ascend1")))


# Ascend


def ascend(root: Path, cards: int) -> Path:
    """A server with Ascend's files, and CANN's libraries on the path's folder `lib64`."""
    base = "usr/local/Ascend"
    files = [*(f"dev/davinci{i}" for i in range(cards)), "dev/davinci_manager", f"{base}/driver/version.info"]
    return write(root, dict.fromkeys([*files, f"{base}/ascend-toolkit/lib64/libge_runner.so"], ""))


def test_an_ascend_server_with_all_parts_is_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Callable[..., DeviceSettings]
) -> None:
    root = ascend(tmp_path / "server", 8)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{root}/usr/local/Ascend/ascend-toolkit/lib64")
    assert set(levels(doctor.target(device("ascend16"), root))) == {OK}
    found = doctor.target(device("ascend16", ranks_per_server=16), root)
    assert "8 Ascend cards for 16 ranks" in str(found[0]) and "write device.ranks_per_server=8" in str(found[0])


def test_every_missing_part_of_ascend_is_a_line_with_its_mend(
    tmp_path: Path, device: Callable[..., DeviceSettings]
) -> None:
    found = [finding for finding in doctor.target(device("ascend8"), tmp_path) if finding.level == MISSING]
    assert len(found) == 4 and all(finding.mend for finding in found)
    text = "\n".join(map(str, found))
    for part in ("0 Ascend cards for 8 ranks", "no Ascend driver in", "no CANN toolkit in", "libge_runner.so"):
        assert part in text


# ports and versions


def test_ports_of_server_0_must_be_free(device: Callable[..., DeviceSettings]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for first in (port, port - 1):
            master = f"127.0.0.1:{first}"
            found = [str(finding) for finding in doctor.ports(device("cpu2x2", master=master)) if not finding.ok]
            assert f"device.master={master}: port {port} is taken" in "\n".join(found)
    found = doctor.ports(device("cpu2x2", master=f"127.0.0.1:{port}"))
    assert f"port {port} of 127.0.0.1 is free" in map(str, found)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"master": "192.0.2.1:8118"}, "192.0.2.1 is no address of this machine"),
        ({"master": "no.such.host.invalid:8118"}, "no.such.host.invalid is no known host"),
        ({"master": "no.such.host.invalid:8118", "server_rank": 1}, "is no known host; write server 0's address"),
        ({"master": "localhost:65535"}, "write device.master=localhost:8118"),
        ({"master": "localhost:0"}, "are no two ports"),
        ({"master": f"{'a' * 70}:8118"}, "is no known host"),
    ],
)
def test_a_master_that_cannot_be(device: Callable[..., DeviceSettings], keys: dict[str, object], said: str) -> None:
    found = list(doctor.ports(device("cpu2x2", **keys)))
    assert found and not any(finding.ok for finding in found) and said in str(found[0])


def test_a_port_that_is_taken_is_no_reason_to_simulate(device: Callable[..., DeviceSettings]) -> None:
    assert doctor.missing(device("cpu", master="localhost:65535")) == []


def test_other_servers_need_only_the_name(device: Callable[..., DeviceSettings]) -> None:
    assert levels(list(doctor.ports(device("cpu2x2", master="localhost:8118", server_rank=1)))) == [OK]
    assert list(doctor.ports(device("cpu2x2"))) == []


@pytest.mark.parametrize(
    ("package", "version", "level", "said"),
    [
        ("numpy", "2.1.0", MISSING, "write pip install 'numpy<2'"),
        ("numpy", "", MISSING, "NumPy is not installed"),
        ("mindspore", "2.3.0", WARNING, "MindSpore 2.3.0 is not 2."),
        ("mindspore", "", MISSING, "write pip install mindspore==2."),
    ],
)
def test_versions(monkeypatch: pytest.MonkeyPatch, package: str, version: str, level: str, said: str) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: version if name == package else real(name))
    found = [finding for finding in doctor.software() if finding.level != OK]
    assert levels(found) == [level] and said in str(found[0])


def test_these_versions_are_right() -> None:
    assert set(levels(list(doctor.software()))) == {OK}


def test_without_a_compiler_there_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for key, value in {"PATH": str(tmp_path), "MSACCEL_CACHE": str(tmp_path), "CXX": ""}.items():
        monkeypatch.setenv(key, value)
    assert levels(list(command.operators())) == [WARNING]


@pytest.mark.parametrize("wide", [True, False])
def test_a_processor_without_avx2_has_a_warning(monkeypatch: pytest.MonkeyPatch, wide: bool) -> None:
    monkeypatch.setattr(processor, "block", lambda: 8 if wide else None)
    assert levels(list(command.operators())) == [OK] + ([] if wide else [WARNING])


# on this machine, in processes


def msaccel(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "msaccel", *arguments], capture_output=True, text=True, timeout=400)


def test_the_launcher_stays_light(device: Callable[..., DeviceSettings]) -> None:
    code = (
        "import sys, msaccel.devices.doctor as d; from msaccel.schema import DeviceSettings as D;"
        "[d.missing(D('x', t, 1, 1, 'auto', 1, None, None, None, 25, 300)) for t in ('CPU', 'GPU', 'Ascend')];"
        "print([name for name in ('mindspore', 'numpy', 'mlflow') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400)
    assert ended.stdout == "[]\n", ended.stderr
    took = []
    for _ in range(3):
        start = time.perf_counter()
        doctor.missing(device("gpu"))
        took.append(time.perf_counter() - start)
    assert min(took) < 0.2


def test_the_command_shows_all_presets() -> None:
    ended = msaccel("doctor")
    assert ended.returncode == 0, ended.stdout
    for name in GROUPS["device"]:
        assert f"device={name}" in ended.stdout
    assert ended.stdout.count("kernels: convolutions") == 1


@pytest.mark.parametrize(
    ("name", "card", "parts"),
    [
        ("gpu", "nvidia0", ("no usable NVIDIA driver",)),
        (
            "ascend16",
            "davinci0",
            ("0 Ascend cards for 8 ranks", "no Ascend driver", "no CANN toolkit", "libge_runner.so is not"),
        ),
    ],
)
def test_the_command_names_each_missing_part(name: str, card: str, parts: tuple[str, ...]) -> None:
    if Path("/dev", card).exists():
        pytest.skip("this machine has such hardware")
    ended = msaccel("doctor", f"device={name}")
    assert ended.returncode == 1 and not ended.stderr
    lines = [line for line in ended.stdout.splitlines() if "✗" in line]
    assert all("; " in line for line in lines)
    for part in parts:
        assert sum(part in line for line in lines) == 1
    assert f"device={name}: cannot be used here" in ended.stdout and "device=cpu" not in ended.stdout.splitlines()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("device=tpu", "device=tpu does not exist; write device= with one of"),
        ("device.thread=1", "device.thread is not a key; write device.threads=1."),
        ("device.threads=0", "device.threads=0 is out of range (at least 1)"),
        ("device.threads=many", "device.threads=many has the wrong type"),
    ],
)
def test_a_bad_override_is_refused_as_run_py_does(override: str, said: str) -> None:
    ended = msaccel("doctor", override)
    assert ended.returncode == 2 and said in ended.stderr and not ended.stdout
