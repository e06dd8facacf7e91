"""Building the operators: concurrent, interrupted, failing or impossible; each ends in a library or one sentence."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from msaccel.kernels import build
from tests.running import SMALL, Store

BUILD = [sys.executable, "-m", "msaccel", "kernels", "build"]

VERSION = '#!/bin/sh\n[ "$1" = --version ] && exit\n'  # how a compiler of a test begins


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no compiler but the usual ones."""
    monkeypatch.setenv("MSACCEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def prebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the library: a copy of this machine's, if that has one of these sources."""
    folder = tmp_path_factory.mktemp("prebuilt")
    if found := build.cached():
        copied = folder / "kernels" / found.parent.name
        copied.mkdir(parents=True)
        for file in (found, build._sum(found)):
            shutil.copy(file, copied)
    else:
        assert said(building(MSACCEL_CACHE=str(folder)))[0] == 0
    return folder


@pytest.fixture
def quick(prebuilt: Path, tmp_path: Path) -> str:
    """A compiler that copies the library that was built before."""
    (built,) = prebuilt.rglob("*.so")
    path = tmp_path / "quick"
    path.write_text(f'{VERSION}for last; do :; done\nexec cp {built} "$last"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def path(prebuilt: Path, own_cache: Path) -> Path:
    """The library, in the test's own cache."""
    shutil.copytree(prebuilt, own_cache)
    found = build.cached()
    assert found
    return found


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    """A file to write a compiler into."""
    path = tmp_path / "compiler"
    path.touch(mode=0o755)
    yield path


def building(**environment: str) -> subprocess.Popen[str]:
    everything = {**os.environ, **environment}
    return subprocess.Popen(
        BUILD,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=everything,
        start_new_session=True,
    )


def said(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


@pytest.mark.soak
def test_an_empty_cache_is_built_into() -> None:
    """By the real compiler, which the other tests leave alone where the cache of this machine has the library."""
    code, output = said(building())
    assert code == 0 and output == f"kernels: convolutions by oneDNN, {build.cached()}\n"


@pytest.mark.slow
def test_several_processes_build_once(own_cache: Path, script: Path, quick: str) -> None:
    script.write_text(f'{VERSION}echo >> {own_cache}/built\nsleep 2\nexec {quick} "$@"\n')
    ended = [said(process) for process in [building(CXX=str(script)) for _ in range(4)]]
    assert {code for code, _ in ended} == {0} and len({output for _, output in ended}) == 1
    assert (own_cache / "built").read_text() == "\n"


def test_it_is_not_built_again_and_needs_no_compiler_then(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = path.stat().st_mtime_ns
    monkeypatch.setenv("PATH", "")
    assert build.library() == path and path.stat().st_mtime_ns == built


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["other bytes", "no digest"])
def test_a_damaged_library_is_built_again(damage: str, quick: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", quick)
    path = build.library()
    digest, content = path.with_suffix(".sha256"), path.read_bytes()
    if damage == "other bytes":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        digest.unlink()
    assert build.cached() is None
    assert build.library() == path and build.is_intact(path)


@pytest.mark.slow
def test_a_compiler_that_was_killed_is_one_sentence_and_the_next_build_works(script: Path, quick: str) -> None:
    script.write_text(f'{VERSION}for last; do :; done\necho half > "$last"\nkill -9 $$\n')
    code, output = said(building(CXX=str(script)))
    assert code == 1 and output.count("\n") == 1
    assert f"the C++ compiler {script} failed (it was ended by SIGKILL)" in output
    assert said(building(CXX=quick))[0] == 0


@pytest.mark.slow
def test_a_build_that_was_killed_is_taken_up_by_the_next(own_cache: Path, script: Path, quick: str) -> None:
    script.write_text(f"{VERSION}touch {own_cache}/begun\nexec sleep 100\n")
    process = building(CXX=str(script))
    while not (own_cache / "begun").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    script.write_text(f'{VERSION}exec {quick} "$@"\n')
    code, output = said(building(CXX=str(script)))
    assert code == 0, output


@pytest.mark.parametrize(
    ("compiler", "sentence"),
    [
        ("#!/bin/sh\necho 'a.cc:1:1: error: no such thing' >&2; exit 1", "failed (a.cc:1:1: error: no such thing)"),
        ("#!/bin/sh\nexit 7", "failed (exit code 7)"),
        (f'{VERSION}for last; do :; done\necho text > "$last"', "do not work here (OSError"),
    ],
    ids=["error", "silent", "not a library"],
)
def test_a_compiler_that_fails_is_one_sentence(script: Path, compiler: str, sentence: str) -> None:
    script.write_text(compiler)
    code, output = said(building(CXX=str(script)))
    assert code == 1 and output.count("\n") == 1
    assert sentence in output and "several times slower" in output and "run this again" in output


def test_a_compiler_that_does_not_answer_is_passed_over(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script.write_text("#!/bin/sh\nsleep 1000")
    assert build._version_of((str(shutil.which("g++")),))  # is kept, and so not asked again within the time below
    monkeypatch.setattr(build, "_SECONDS_TO_ANSWER", 0.2)
    monkeypatch.setattr(build, "COMPILERS", (str(script), "g++"))
    assert build.find_compiler() == [shutil.which("g++")]
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(build.UnavailableError, match=r"answer --version within 0\.2 seconds; set CXX to another"):
        build.find_compiler()


def test_a_compiler_that_cannot_be_executed_is_passed_over(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one for another kind of processor."""
    script.write_bytes(b"\x7fELF and nothing else")
    monkeypatch.setattr(build, "COMPILERS", (str(script), "g++"))
    assert build.find_compiler() == [shutil.which("g++")]
    for compiler, said in (
        (str(script), "did not answer --version"),
        ('g++ "', "is no command .No closing quotation."),
    ):
        monkeypatch.setenv("CXX", compiler)
        with pytest.raises(build.UnavailableError, match=f"{said}.*; set CXX to a"):
            build.find_compiler()


def test_a_cache_in_the_home_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSACCEL_CACHE", "~nobody-here/cache")
    with pytest.raises(build.UnavailableError, match=r"^MSACCEL_CACHE=~nobody-here/cache begins with the home of a"):
        build.library()


def test_a_build_of_another_process_that_never_ends(
    own_cache: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_text(f"#!/bin/sh\n{VERSION}sleep 1000")
    process = building(CXX=str(script))
    while not list(own_cache.glob("kernels/*/lock")):
        assert process.poll() is None
    monkeypatch.setattr(build, "_SECONDS_TO_BUILD", 0.1)
    monkeypatch.setattr(build, "_SECONDS_TO_PROBE", 0.1)
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(build.UnavailableError, match="for longer than a build takes; end that, then run"):
        build.library()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_compiler_that_is_not_there() -> None:
    code, output = said(building(CXX="/nowhere/g++ -m64"))
    assert code == 1 and "no C++ compiler was found (/nowhere/g++ -m64)" in output


def test_a_cache_that_cannot_be_written(own_cache: Path) -> None:
    own_cache.write_text("a file")
    code, output = said(building())
    assert code == 1 and output.count("\n") == 1 and "cannot be written" in output and "MSACCEL_CACHE" in output


def test_status_before_a_build() -> None:
    status = subprocess.check_output([*BUILD[:-1], "status"], text=True)
    assert "not built yet; the first job builds them with" in status


def test_status_after_one(path: Path) -> None:
    assert f"convolutions by oneDNN, {path}" in subprocess.check_output([*BUILD[:-1], "status"], text=True)


@pytest.mark.slow
class TestJobs:
    """Whole runs without a compiler; tests/launch/test_log.py has one with the library."""

    def test_without_one_the_fallback_serves_and_says_so(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        ended = store.run(*SMALL, PATH="/nowhere")
        assert ended.returncode == 0, ended.stderr
        assert "convolutions as unfold and matrix product, several times slower" in ended.stdout
        assert "no C++ compiler was found (g++ or c++ or clang++); install g++" in ended.stdout
        assert store.runs()[0].data.tags["kernels"] == "unfold"

    def test_without_one_onednn_is_refused(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        ended = store.run(*SMALL, "kernels.use=onednn", PATH="/nowhere")
        assert ended.returncode == 2 and not store.runs()
        assert ended.stderr.startswith("kernels.use=onednn: no C++ compiler was found")
        assert ended.stderr.strip().endswith("Or write kernels.use=auto.") and ended.stderr.count("\n") == 1

    @pytest.mark.parametrize("choice", ["unfold", "mindspore"])
    def test_others_by_name(self, tmp_path: Path, choice: str) -> None:
        store = Store(tmp_path)
        ended = store.run(*SMALL, f"kernels.use={choice}", PATH="/nowhere")
        assert ended.returncode == 0, ended.stderr
        assert "slower" not in ended.stdout
        assert store.runs()[0].data.tags["kernels"] == choice
