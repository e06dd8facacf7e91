"""Operators that MindSpore lacks or runs slowly: convolutions, fused layers, losses and optimizer steps.

`accelerate(network)` puts them into any MindSpore network, and `restore(network)` takes them out again. To build with
them, call `use_backend(select_backend("auto", on_cpu=True))` before building networks, then write `Conv2d` instead of
`nn.Conv2d`. The package imports nothing else of msaccel, and MindSpore only when a cell is used: the process that
launches jobs only asks whether the oneDNN operators are available. `native/README.md` describes the native operators.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from msaccel.kernels.backend import Backend, Products, current_backend, refusals, select_backend, use_backend
from msaccel.kernels.build import KernelError, UnavailableError

if TYPE_CHECKING:
    from msaccel.kernels.acceleration import Replacements, accelerate, restore
    from msaccel.kernels.activations import Gelu
    from msaccel.kernels.adasum import Adasum, AdasumRows, RevertToBase, Subtract
    from msaccel.kernels.attention import CausalAttention
    from msaccel.kernels.batch_product import BatchProduct
    from msaccel.kernels.conv import Conv2d
    from msaccel.kernels.dense import Dense
    from msaccel.kernels.embedding import Embedding
    from msaccel.kernels.finite_check import FiniteCheck, Outcome, stack_outcome
    from msaccel.kernels.fork import Fork
    from msaccel.kernels.layer_norm import LayerNorm
    from msaccel.kernels.loss import CrossEntropy
    from msaccel.kernels.multi_tensor import Accumulate, GlobalNorm, Scale
    from msaccel.kernels.norm import BatchNorm2d
    from msaccel.kernels.optimizer_steps import Adam, Momentum, fused_step
    from msaccel.kernels.pool import MaxPool2d

__all__ = [
    "Accumulate", "Adam", "Adasum", "AdasumRows", "Backend", "BatchNorm2d", "BatchProduct", "CausalAttention", "Conv2d",
    "CrossEntropy", "Dense", "Embedding", "FiniteCheck", "Fork", "Gelu", "GlobalNorm", "KernelError", "LayerNorm",
    "MaxPool2d", "Momentum", "Outcome", "Products", "Replacements", "RevertToBase", "Scale", "Subtract",
    "UnavailableError", "accelerate", "current_backend", "fused_step", "refusals", "restore", "select_backend",
    "stack_outcome", "use_backend",
]  # fmt: skip


_CELLS = {
    "acceleration": ("Replacements", "accelerate", "restore"),
    "activations": ("Gelu",),
    "adasum": ("Adasum", "AdasumRows", "RevertToBase", "Subtract"),
    "attention": ("CausalAttention",),
    "batch_product": ("BatchProduct",),
    "conv": ("Conv2d",),
    "dense": ("Dense",),
    "embedding": ("Embedding",),
    "finite_check": ("FiniteCheck", "Outcome", "stack_outcome"),
    "fork": ("Fork",),
    "layer_norm": ("LayerNorm",),
    "loss": ("CrossEntropy",),
    "multi_tensor": ("Accumulate", "GlobalNorm", "Scale"),
    "norm": ("BatchNorm2d",),
    "optimizer_steps": ("Adam", "Momentum", "fused_step"),
    "pool": ("MaxPool2d",),
}


def __getattr__(name: str) -> Any:
    for module, names in _CELLS.items():
        if name in names:
            return getattr(importlib.import_module(f"msaccel.kernels.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
