"""Which instructions the processor has, of those that decide how the operators compute."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path

# By which oneDNN and native/dispatch.h choose their code, widest first: as Linux names them, and as people do.
_INSTRUCTIONS = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX-512-BF16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
    "avx": "AVX",
    "sve": "SVE",
    "asimd": "NEON",
}


@cache
def _features() -> frozenset[str]:
    """Of the processor, as Linux names them."""
    try:
        return frozenset(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return frozenset()


def block() -> int | None:
    """Channels that are contiguous in the blocked layout, as in native/vector.h; None where oneDNN has none.

    oneDNN computes blocks that are wider than the processor's vectors by its reference code.
    """
    return 16 if "avx512f" in _features() else 8 if "avx2" in _features() else None


def has_bf16() -> bool:
    """Whether the processor multiplies in bfloat16, which takes half the time of float32."""
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(_features())


def widest_instructions(features: Collection[str]) -> str:
    """The widest of a processor's instructions that the operators use, for people to read; empty if they use none."""
    return next((name for feature, name in _INSTRUCTIONS.items() if feature in features), "")
