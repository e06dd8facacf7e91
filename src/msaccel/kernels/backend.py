"""The backend that computes a job's operators, selected once before its networks are built."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from msaccel.kernels import build, processor
from msaccel.kernels.signal_stack import provide_signal_stack

ONEDNN, IM2COL, MINDSPORE = "onednn", "unfold", "mindspore"  # values of the key `kernels.use`


class Products(IntEnum):
    """How convolutions, dense layers and attention multiply; sums are in float32 whatever this is."""

    FLOAT32 = 0  # in the tensors' type
    BFLOAT16 = 1  # factors rounded to bfloat16, by the processor's instructions for that
    EMULATED = 2  # the same factors multiplied in float32, on any processor


@dataclass(frozen=True)
class Backend:
    """What computes convolutions and, with a library, the fused operators.

    Attributes:
        name: `onednn`, `unfold` (im2col and a matrix product) or `mindspore`.
        library: the shared library of native operators; only with `onednn`.
        tag: identifies the operators; runs are compared bit by bit only if their tags are equal.
        products: how its operators multiply; without a library always FLOAT32.
        reason: a sentence that says why a slower backend was selected, or empty.
    """

    name: str
    library: Path | None = None
    tag: str = ""
    products: Products = Products.FLOAT32
    reason: str = ""

    def __str__(self) -> str:
        how = {Products.BFLOAT16: " in bfloat16", Products.EMULATED: " in emulated bfloat16"}.get(self.products, "")
        said = {
            ONEDNN: f"convolutions by oneDNN{how} ({self.tag})",
            IM2COL: "convolutions as unfold and matrix product",
            MINDSPORE: "convolutions by MindSpore",
        }[self.name]
        return f"{said}, several times slower than on oneDNN: {self.reason}" if self.reason else said


def select_backend(wanted: str, on_cpu: bool, products: Products = Products.FLOAT32) -> Backend:
    """The backend for a job; builds the native operators if they are wanted and not in the cache.

    Args:
        wanted: the key `kernels.use`.
        on_cpu: whether the job computes on a CPU.
        products: how to multiply; anything but FLOAT32 needs the operators on oneDNN.

    Raises:
        UnavailableError: `onednn` is wanted or needed and not available, or the processor lacks bfloat16.
    """
    if products == Products.BFLOAT16 and not processor.has_bf16():
        raise build.UnavailableError(_NO_BF16)
    if wanted == "auto" and not on_cpu:
        wanted = MINDSPORE
    if wanted not in ("auto", ONEDNN):
        return Backend(wanted, tag=wanted)
    try:
        return Backend(ONEDNN, build.library(), build.tag(), products)
    except build.UnavailableError as error:
        if products != Products.FLOAT32:
            raise build.UnavailableError(f"precision=bf16: {error} Or write precision=fp32.") from error
        if wanted == ONEDNN:
            raise build.UnavailableError(_refusal(error)) from error
        return Backend(IM2COL, tag=IM2COL, reason=str(error))


def refusals(wanted: str, on_cpu: bool, products: Products = Products.FLOAT32) -> Iterator[str]:
    """A sentence if `wanted` or `products` is not available, as far as that is known without building."""
    if products == Products.BFLOAT16 and not processor.has_bf16():
        yield _NO_BF16
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


_NO_BF16 = (
    "precision=bf16 needs a processor with instructions for bfloat16 (avx512_bf16 or amx_bf16), which this one lacks; "
    "write precision=fp32."
)

_current = Backend(IM2COL, tag=IM2COL)


def use_backend(backend: Backend) -> None:
    """Networks built from now on compute with this backend, and signals leave its products alone."""
    global _current
    provide_signal_stack()
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
