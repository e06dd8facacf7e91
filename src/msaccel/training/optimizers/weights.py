"""What an optimizer moves, and what it must know of each tensor."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mindspore import Parameter


@dataclass(frozen=True)
class Weights:
    """The trainable parameters of a network, or some of them.

    Attributes:
        parameters: the optimizer takes their gradients in this order.
        undecayed: names of those that weight decay leaves alone (`msaccel.models.undecayed`).
        outer: names of the weights of the first and the last layers (`msaccel.models.outer`).
        partial: whether the network has others that train, in other updates.
    """

    parameters: Sequence[Parameter]
    undecayed: Collection[str] = ()
    outer: Collection[str] = ()
    partial: bool = False

    def decays(self, weight_decay: float) -> tuple[float, ...]:
        """The weight decay of each parameter."""
        return tuple(0.0 if parameter.name in self.undecayed else weight_decay for parameter in self.parameters)

    def layers(self) -> tuple[bool, ...]:
        """For each parameter whether LARS and LAMB decay it and adapt its rate: not for biases and norm layers."""
        return tuple(weight.ndim > 1 and weight.name not in self.undecayed for weight in self.parameters)
