"""Which operators a job computes with, chosen once before its networks are built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msaccel.errors import UserError
from msaccel.kernels import build

ONEDNN, UNFOLD, MINDSPORE = "onednn", "unfold", "mindspore"


@dataclass(frozen=True)
class Choice:
    """What computes convolutions.

    Attributes:
        name: `onednn`, `unfold` or `mindspore`.
        library: the operators on oneDNN; only with `onednn`.
        tag: names the operators; runs are compared bit by bit only where it is the same.
        reason: why it is not what was hoped for; a sentence, or empty.
    """

    name: str
    library: Path | None = None
    tag: str = ""
    reason: str = ""

    def __str__(self) -> str:
        said = {
            ONEDNN: f"convolutions by oneDNN ({self.tag})",
            UNFOLD: "convolutions as unfold and matrix product",
            MINDSPORE: "convolutions by MindSpore",
        }[self.name]
        return f"{said}, several times slower than on oneDNN: {self.reason}" if self.reason else said


def choose(wanted: str, on_cpu: bool) -> Choice:
    """The operators for a job; builds those on oneDNN if they are wanted and not there yet.

    Args:
        wanted: the key `kernels.use`.
        on_cpu: whether the job computes on a CPU.

    Raises:
        UserError: `onednn` is wanted and cannot be had.
    """
    if wanted == "auto" and not on_cpu:
        wanted = MINDSPORE
    if wanted not in ("auto", ONEDNN):
        return Choice(wanted, tag=wanted)
    try:
        return Choice(ONEDNN, build.library(), f"onednn-{build.source_digest()[:8]}")
    except build.Unavailable as error:
        if wanted == ONEDNN:
            raise UserError(f"kernels.use=onednn: {error} Or write kernels.use=auto.") from error
        return Choice(UNFOLD, tag=UNFOLD, reason=str(error))


def refusals(wanted: str, on_cpu: bool) -> Iterator[str]:
    """A sentence if `wanted` cannot be had, as far as it can be said without building."""
    if wanted != ONEDNN:
        return
    if not on_cpu:
        yield "kernels.use=onednn is for the CPU; write kernels.use=auto, or device=cpu."
        return
    try:
        build.cached() or build.find_compiler()
    except build.Unavailable as error:
        yield f"kernels.use=onednn: {error} Or write kernels.use=auto."


_chosen = Choice(UNFOLD, tag=UNFOLD)


def use(choice: Choice) -> None:
    """Networks that are built from now on compute with these operators."""
    global _chosen
    _chosen = choice


def chosen() -> Choice:
    return _chosen
