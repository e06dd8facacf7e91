"""The networks: one package each, found here by name.

A network's package `models/<name>/` holds `SETTINGS`, the dataclass of its keys, filled from `conf/model/<name>.yaml`,
and `build`, which makes the network from them. The network itself is in another module, which `build` imports: the
process that launches jobs reads this and never loads MindSpore. `TITLE`, if it is there, names the network in a
sentence, with its keys in braces: `ResNet-{depth}`. `docs/adding-a-network.md` adds one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

from msaccel.schema import ModelSettings

if TYPE_CHECKING:
    from mindspore import nn


@lru_cache
def networks() -> dict[str, ModuleType]:
    """All networks by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def build(model: ModelSettings) -> nn.Cell:
    """Builds the network `model.name`, with its weights initialised as `model.init` says."""
    network: nn.Cell = networks()[model.name].build(model)
    return network


def title(params: Mapping[str, str]) -> str:
    """How a sentence names the network of a run with these parameters: `ResNet-20`."""
    name, prefix = params["model.name"], "model."
    keys = {key.removeprefix(prefix): value for key, value in params.items() if key.startswith(prefix)}
    return str(getattr(networks()[name], "TITLE", name)).format(**keys)


def undecayed(network: nn.Cell) -> frozenset[str]:
    """Names of the parameters without weight decay: what the network's `undecayed` says, if it has one, else none."""
    return network.undecayed() if hasattr(network, "undecayed") else frozenset()


def outer(network: nn.Cell) -> frozenset[str]:
    """Names of the weights of the first and the last layers: what the network's `outer` says, if it has one.

    Else those of the first and of the last parameter with more than one axis.
    """
    if hasattr(network, "outer"):
        return network.outer()
    matrices = [weight.name for weight in network.trainable_params() if weight.ndim > 1]
    return frozenset((matrices[0], matrices[-1])) if matrices else frozenset()
