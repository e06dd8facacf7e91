"""The backend that computes a job's operators, selected once before its networks are built."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from msaccel.kernels import build

ONEDNN, IM2COL, MINDSPORE = "onednn", "unfold", "mindspore"  # values of the key `kernels.use`


@dataclass(frozen=True)
class Backend:
    """What computes convolutions and, with a library, the fused operators.

    Attributes:
        name: `onednn`, `unfold` (im2col and a matrix product) or `mindspore`.
        library: the shared library of native operators; only with `onednn`.
        tag: identifies the operators; runs are compared bit by bit only if their tags are equal.
        same_bits: tags of earlier operators with the same results bit for bit.
        reason: a sentence that says why a slower backend was selected, or empty.
    """

    name: str
    library: Path | None = None
    tag: str = ""
    same_bits: tuple[str, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        said = {
            ONEDNN: f"convolutions by oneDNN ({self.tag})",
            IM2COL: "convolutions as unfold and matrix product",
            MINDSPORE: "convolutions by MindSpore",
        }[self.name]
        return f"{said}, several times slower than on oneDNN: {self.reason}" if self.reason else said


def select_backend(wanted: str, on_cpu: bool) -> Backend:
    """The backend for a job; builds the native operators if they are wanted and not in the cache.

    Args:
        wanted: the key `kernels.use`.
        on_cpu: whether the job computes on a CPU.

    Raises:
        UnavailableError: `onednn` is wanted and not available.
    """
    if wanted == "auto" and not on_cpu:
        wanted = MINDSPORE
    if wanted not in ("auto", ONEDNN):
        return Backend(wanted, tag=wanted)
    try:
        return Backend(ONEDNN, build.library(), build.tag(), build.tags_of_same_bits())
    except build.UnavailableError as error:
        if wanted == ONEDNN:
            raise build.UnavailableError(_refusal(error)) from error
        return Backend(IM2COL, tag=IM2COL, reason=str(error))


@cache
def has_avx512() -> bool:
    """Whether the processor has AVX-512; without it oneDNN computes blocks of 16 channels by its reference code."""
    try:
        return "avx512f" in Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False


def refusals(wanted: str, on_cpu: bool) -> Iterator[str]:
    """A sentence if `wanted` is not available, as far as that is known without building."""
    if wanted != ONEDNN:
        return
    if not on_cpu:
        yield "kernels.use=onednn is for the CPU; write kernels.use=auto, or device=cpu."
        return
    try:
        build.cached() or build.find_compiler()
    except build.UnavailableError as error:
        yield _refusal(error)


def _refusal(error: build.UnavailableError) -> str:
    return f"kernels.use=onednn: {error} Or write kernels.use=auto."


_current = Backend(IM2COL, tag=IM2COL)


def use_backend(backend: Backend) -> None:
    """Networks built from now on compute with this backend."""
    global _current
    _current = backend


def current_backend() -> Backend:
    return _current


@contextmanager
def native_operators() -> Iterator[None]:
    """Cells that are built in this scope use the native operators, whatever the current backend.

    Raises:
        UnavailableError: they cannot be built or do not work here.
    """
    before = current_backend()
    use_backend(Backend(ONEDNN, build.library()))
    try:
        yield
    finally:
        use_backend(before)
