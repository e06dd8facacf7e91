"""MindSpore's optimizers with one operator for a step of all weights, which `accelerate` makes of them.

MindSpore calls an operator for each weight, and in `nn.Momentum` two more for its decay. An optimizer is given one of
these classes in place of its own; its parameters and their names stay. `nn.Adam` is not among them: it takes sparse
gradients, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msaccel.kernels.multi_tensor import in_float32
from msaccel.kernels.optimizer_steps import fused_step

_DECOUPLED = 1.0  # for the operator: weight decay is not part of the gradient


class FusedStep(nn.Cell):
    """A step of the operator `name`, from the rate and the gradients.

    Args:
        weights: what the gradients belong to.
        states: what the optimizer keeps for each weight.
        numbers: of the optimizer, without the first if it is a parameter.
        first: the first of the numbers, if it is a parameter.
        scalars: parameters that the operator writes.
    """

    def __init__(
        self,
        name: str,
        weights: ParameterTuple,
        states: Sequence[ParameterTuple],
        numbers: Sequence[float],
        first: Parameter | None = None,
        scalars: Sequence[Parameter] = (),
    ) -> None:
        super().__init__(auto_prefix=False)
        self.step = fused_step(name, len(weights), len(states), len(scalars))
        self.always, self.numbers = Tensor(1.0, ms.float32), Tensor(numbers, ms.float32)
        # A cell would keep them by the names of the parameters, and one of those may be that of an attribute.
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "scalars", ParameterTuple(scalars))
        tensors = [*weights, *(tensor for state in states for tensor in state)]
        object.__setattr__(self, "tensors", ParameterTuple(tensors))

    def construct(self, rate: Tensor, gradients: tuple[Tensor, ...]) -> Tensor:
        numbers = self.numbers if self.first is None else ops.concat((self.first.reshape(1), self.numbers))
        return self.step(self.always, rate, numbers, *self.scalars, *gradients, *self.tensors)


class _Swapped(nn.Optimizer):
    fast: FusedStep

    @ms.jit
    def construct(self, gradients: tuple[Tensor, ...]) -> Tensor:
        gradients, rate = in_float32(self.scale_grad(gradients)), ops.cast(self.get_lr(), ms.float32)
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        return self.fast(rate, gradients)


class SwappedMomentum(_Swapped, nn.Momentum):
    """For `nn.Momentum`."""

    def make_fast(self) -> FusedStep:
        return FusedStep("momentum", self.parameters, [self.moments], _decays(self), first=self.momentum)


class SwappedAdamWeightDecay(_Swapped, nn.AdamWeightDecay):
    """For `nn.AdamWeightDecay`: AdamW without bias correction, so the operator's powers of β are 0 and stay so."""

    def make_fast(self) -> FusedStep:
        states, name = [self.moments1, self.moments2], self.moments1[0].name  # unique in a graph
        powers = [Parameter(Tensor(0.0, ms.float32), f"power{i}.{name}", requires_grad=False) for i in (1, 2)]
        numbers = [float(value.asnumpy().item()) for value in (self.beta1, self.beta2, self.eps)]
        return FusedStep("adam", self.parameters, states, [*numbers, _DECOUPLED, *_decays(self)], scalars=powers)


OPTIMIZERS: dict[type[nn.Optimizer], type[SwappedMomentum | SwappedAdamWeightDecay]] = {
    nn.Momentum: SwappedMomentum,
    nn.AdamWeightDecay: SwappedAdamWeightDecay,
}


def why_optimizer_stays(optimizer: nn.Optimizer) -> str:
    """Why an optimizer of these classes stays; empty if it need not."""
    if optimizer.is_group_lr:
        return "groups with learning rates of their own"
    if optimizer.dynamic_weight_decay:
        return "a weight decay that changes"
    if any(getattr(optimizer, "grad_centralization_flags", ())):
        return "centralised gradients"
    if getattr(optimizer, "use_nesterov", False):
        return "with Nesterov's momentum"
    if any(parameter.dtype != ms.float32 for parameter in optimizer.parameters):
        return "weights of other types than float32"
    return ""


def _decays(optimizer: nn.Optimizer) -> list[float]:
    """The weight decay of each parameter; MindSpore keeps it multiplied by the loss scale."""
    values = optimizer.weight_decay
    if not optimizer.is_group:
        values = (values,) * len(optimizer.parameters)
    pairs = zip(values, optimizer.decay_flags, strict=True)
    return [float(value) / optimizer.loss_scale if decayed else 0.0 for value, decayed in pairs]
