"""What a number was measured with."""

import platform
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import pytest

from msaccel.tracking import provenance


def test_all_installed_packages_are_listed_with_their_versions() -> None:
    machine, *packages = provenance.environment().splitlines()
    assert machine.startswith("# ")
    assert set(packages) == {f"{dist.metadata['Name']}=={dist.version}" for dist in distributions()}


@pytest.mark.parametrize("named", ["--output={}", "--output={}-dirty", "HEAD", "0123456789"])
def test_a_commit_that_is_none_is_not_given_to_git(named: str, tmp_path: Path) -> None:
    """It is the tag of a run, which anybody who writes to the store can set."""
    assert provenance.differs_from(named.format(tmp_path / "written"))
    assert not any(tmp_path.iterdir())


def test_code_is_compared_with_its_commit() -> None:
    assert not provenance.differs_from("unknown")
    assert provenance.differs_from(40 * "0")
    if (commit := provenance.git_commit()) != "unknown":
        assert provenance.differs_from(commit) == commit.endswith(provenance.DIRTY)


EPYC = """processor\t: {core}
vendor_id\t: AuthenticAMD
cpu family\t: {family}
model\t\t: {model}
model name\t: AMD EPYC
stepping\t: 1
cpu MHz\t\t: 2445.404
flags\t\t: fpu vme sse4_1 avx {flags} fsrm
power management:

"""
ARM = """processor\t: {core}
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm{features} crc32
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: {part}
CPU revision\t: 1

"""


@pytest.mark.parametrize(
    ("text", "given", "name"),
    [
        (EPYC, {"family": 25, "model": 1, "flags": "avx2"}, "AMD EPYC (family 25, model 1, AVX2)"),
        (EPYC, {"family": 25, "model": 17, "flags": "avx2 avx512f"}, "AMD EPYC (family 25, model 17, AVX-512)"),
        (
            EPYC,
            {"family": 25, "model": 17, "flags": "avx2 avx512f avx512_bf16"},
            "AMD EPYC (family 25, model 17, AVX-512-BF16)",
        ),
        (
            EPYC.replace("AMD EPYC", "Intel(R) Xeon(R) Processor"),
            {"family": 6, "model": 143, "flags": "avx2 avx512f avx512_bf16 amx_bf16 amx_tile"},
            "Intel(R) Xeon(R) Processor (family 6, model 143, AMX)",
        ),
        (EPYC, {"family": 25, "model": 1, "flags": ""}, "AMD EPYC (family 25, model 1, AVX)"),
        (ARM, {"part": "0xd0c", "features": ""}, "aarch64 (implementer 0x41, part 0xd0c, NEON)"),
        (ARM, {"part": "0xd40", "features": " sve"}, "aarch64 (implementer 0x41, part 0xd40, SVE)"),
        ("cpu\t: POWER9\n", {}, "aarch64"),
        ("", {}, "aarch64"),
    ],
)
def test_processors_of_one_name_are_told_apart(
    text: str, given: dict[str, object], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("".join(text.format(core=core, **given) for core in range(2)))
    assert provenance.processor(cpuinfo) == name


def test_without_cpuinfo_a_processor_has_the_name_that_macos_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    command = tmp_path / "sysctl"
    command.write_text("#!/bin/sh\n[ \"$*\" = '-n machdep.cpu.brand_string' ] && echo Apple M1\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.processor(tmp_path / "none") == "Apple M1"
    command.unlink()
    assert provenance.processor(tmp_path / "none") == "arm"


def test_a_commit_is_dirty_when_what_decides_a_run_differs_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    for name in ("src/code.py", "conf/config.yaml", "experiments/a/README.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("before")
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    commit = provenance.git_commit.__wrapped__()
    assert len(commit) == 40
    (tmp_path / "experiments/a/README.md").write_text("a study's results")
    assert provenance.git_commit.__wrapped__() == commit
    (tmp_path / "conf/config.yaml").write_text("another rate")
    assert provenance.git_commit.__wrapped__() == f"{commit}-dirty"
