"""Steps of optimizers as one fused operator each over all parameters.

Optimizer steps write weights and their own state in place. Fused steps (`fused`) take a flag, `should_step` = 0, that
skips them without control flow in the graph. Or they only say by how much weights would move (`differences`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from msaccel.kernels.backend import current_backend
from msaccel.kernels.custom_op import ONE, operator
from msaccel.kernels.flat import Tensors


def fused_step(name: str, weights: int, states: int, scalars: int = 0) -> ops.Custom:
    """The operator `msaccel_<name>`: a step of an optimizer. Only with the native operators.

    It takes should_step, the rate, the optimizer's numbers, parameters that hold a scalar, the gradients, the weights,
    and tensors of their shapes, and returns should_step. It writes the scalars, the weights and the tensors of their
    shapes in place.

    Args:
        weights: how many there are.
        states: how many other tensors the optimizer keeps for each weight.
        scalars: how many parameters hold a scalar.
    """
    written = _written(scalars, weights, weights * (1 + states))
    return operator(name, lambda *tensors: ONE, lambda *tensors: ms.float32, written=written)


def _difference(name: str, weights: int, states: int, scalars: int = 0) -> ops.Custom:
    """The same step, which leaves the weights as they are and returns by how much they would fall."""

    def of_gradients(*inputs: object) -> tuple[object, ...]:
        return inputs[3 + scalars : 3 + scalars + weights]

    written = _written(scalars, 2 * weights, weights * states)
    return operator(f"{name}_difference", of_gradients, of_gradients, (name, weights), written)


def _written(scalars: int, read: int, tensors: int) -> tuple[bool, ...]:
    """Which inputs of a step are written: scalars behind its first three inputs, and tensors behind those it reads."""
    return (False,) * 3 + (True,) * scalars + (False,) * read + (True,) * tensors


class Momentum(nn.Momentum):
    """`nn.Momentum` as one fused operator: v ← μ v + (g + λ w), then w ← w − η v.

    Args:
        groups: the parameters as MindSpore's optimizers take them.
        decays: weight decay λ of each parameter, in the order of the gradients.
        weight_decay: that of groups which name none, for where the operator is not available.
    """

    def __init__(
        self,
        groups: Sequence[Parameter | dict[str, Any]],
        decays: Sequence[float],
        *,
        learning_rate: float,
        momentum: float,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(groups, learning_rate, momentum, weight_decay)
        self.fused = current_backend().library is not None
        if self.fused:
            self.numbers, self.always = Tensor([momentum, *decays], ms.float32), Tensor(1.0, ms.float32)
            self.step = fused_step("momentum", len(self.parameters), states=1)
            self.difference = _difference("momentum", len(self.parameters), states=1)

    def construct(self, gradients: tuple[Tensor, ...], should_step: Tensor | None = None) -> Tensor:
        if self.fused:
            known = (self.always if should_step is None else should_step, self.learning_rate, self.numbers)
            return self.step(*known, *gradients, *self.parameters, *self.moments)
        return super().construct(gradients)

    def differences(self, gradients: Tensors, should_step: Tensor, rate: Tensor) -> Tensors:
        """A step that leaves the weights as they are: w_old − w_new for each. Only if `fused`."""
        return self.difference(should_step, rate, self.numbers, *gradients, *self.parameters, *self.moments)


class Adam(nn.Adam):
    """`nn.Adam` as one fused operator; with decoupled decay AdamW: w ← (1 − η λ) w, then Adam (arXiv 1711.05101).

    MindSpore's own operator splits a tensor among threads by earlier timings, so its last bits vary between runs.

    Args:
        groups: the parameters as MindSpore's optimizers take them, without decay if it is decoupled.
        decays: weight decay λ of each parameter, in the order of the gradients.
        decoupled: whether the decay is applied to the weight directly instead of being added to the gradient.
        weight_decay: that of groups which name none, for where the operator is not available.
    """

    def __init__(
        self,
        groups: Sequence[Any],
        decays: Sequence[float],
        decoupled: bool = False,
        *,
        learning_rate: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(groups, learning_rate, beta1, beta2, eps, weight_decay=weight_decay)
        self.decoupled, self.decays = decoupled, tuple(decays)
        self.fused = current_backend().library is not None
        if self.fused:
            numbers = [beta1, beta2, eps, float(decoupled), *decays]
            self.numbers, self.always = Tensor(numbers, ms.float32), Tensor(1.0, ms.float32)
            self.step = fused_step("adam", len(self.parameters), states=2, scalars=2)
            self.difference = _difference("adam", len(self.parameters), states=2, scalars=2)

    def construct(self, gradients: tuple[Tensor, ...], should_step: Tensor | None = None) -> Tensor:
        if self.fused:
            should_step = self.always if should_step is None else should_step
            known = (should_step, self.learning_rate, self.numbers, self.beta1_power, self.beta2_power)
            return self.step(*known, *gradients, *self.parameters, *self.moment1, *self.moment2)
        if self.decoupled:
            for i in range(len(self.decays)):
                if self.decays[i]:
                    weight = self.parameters[i]
                    ops.assign(weight, weight * (1 - self.learning_rate * self.decays[i]))
        return super().construct(gradients)

    def differences(self, gradients: Tensors, should_step: Tensor, rate: Tensor) -> Tensors:
        """A step that leaves the weights as they are: w_old − w_new for each. Only if `fused`."""
        known = (should_step, rate, self.numbers, self.beta1_power, self.beta2_power)
        return self.difference(*known, *gradients, *self.parameters, *self.moment1, *self.moment2)
