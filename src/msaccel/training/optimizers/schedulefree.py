"""Schedule-free SGD and AdamW: an average of the weights takes the place of a rate that decays.

Three sequences of weights begin at the same ones: z takes the steps, x is the average of z, and the gradient g is
taken at y, between them. With γ the rate, λ the weight decay, and update t:

    z ← z − γ (g + λ y)                                           form=sgd
    v ← β₂ v + (1 − β₂) g²,  γ ← γ √(1 − β₂ᵗ)
    z ← z − γ (g / (√v + ε) + λ y)                                form=adamw
    x ← (1 − c) x + c z,                                          c = γ² / Σ γ² over all updates so far
    y ← (1 − β₁) z + β₁ x

The network holds y while it trains and x when it is evaluated and saved. A warm-up is part of the method; with a
constant rate afterwards and form=sgd, x is the plain mean of z except for the warm-up.
Source: Defazio et al., arXiv 2405.15682, equations 7 to 9 and algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from msaccel.checkpoint.state import State, set_values, values_restored
from msaccel.kernels import current_backend, fused_step
from msaccel.schema import ScheduleFreeSettings
from msaccel.training.optimizers.weights import Weights

_LEAST = 1e-30  # a sum of γ² below this means that all rates were zero


class ScheduleFree(nn.Optimizer):
    """Inputs: gradients at y, float32, in the order of the weights; if `fused`, whether to step (1 or 0)."""

    def __init__(self, weights: Weights, settings: ScheduleFreeSettings) -> None:
        super().__init__(settings.lr, list(weights.parameters))
        self.beta1, self.beta2, self.eps = settings.beta1, settings.beta2, settings.eps
        self.rest1, self.rest2 = 1 - self.beta1, 1 - self.beta2  # in a graph the difference is rounded to float32 first
        self.decays = weights.decays(settings.weight_decay)
        self.adaptive = settings.form == "adamw"
        self.stepped = self.parameters.clone(prefix="z", init="same")
        self.averages = self.parameters.clone(prefix="x", init="same")
        self.rates = Parameter(Tensor(0.0, ms.float32), name="squared_rates", requires_grad=False)
        if self.adaptive:
            self.moments = self.parameters.clone(prefix="moment2", init="zeros")
            # 1 − β₂ᵗ, as the moment of a gradient of ones: rounded like the others.
            self.correction = Parameter(Tensor(0.0, ms.float32), name="correction2", requires_grad=False)
        self.least, self.one = Tensor(_LEAST, ms.float32), Tensor(1.0, ms.float32)
        self.fused = current_backend().library is not None
        if self.fused:
            name, more = f"schedule_free_{settings.form}", int(self.adaptive)
            self.step = fused_step(name, len(self.parameters), states=2 + more, scalars=1 + more)
            epsilon = (self.eps,) if self.adaptive else ()
            numbers = (self.rest1, self.beta2, self.rest2, _LEAST, *epsilon)
            self.numbers = Tensor([*numbers, *self.decays], ms.float32)

    def construct(self, gradients: tuple[Tensor, ...], should_step: Tensor | None = None) -> Tensor:
        if self.fused:
            should_step = self.one if should_step is None else should_step
            known = (should_step, self.learning_rate, self.numbers, self.rates)
            tensors = (*gradients, *self.parameters, *self.stepped, *self.averages)
            if self.adaptive:
                return self.step(*known, self.correction, *tensors, *self.moments)
            return self.step(*known, *tensors)
        rate = self.learning_rate * 1
        if self.adaptive:
            correction = self.beta2 * self.correction + self.rest2
            ops.assign(self.correction, correction)
            rate = rate * ops.sqrt(correction)
        total = self.rates + rate * rate
        share = rate * rate / ops.maximum(total, self.least)
        ops.assign(self.rates, total)
        for i in range(len(self.parameters)):
            weight, step = self.parameters[i], gradients[i]
            if self.adaptive:
                moment = self.beta2 * self.moments[i] + self.rest2 * step * step
                ops.assign(self.moments[i], moment)
                step = step / (ops.sqrt(moment) + self.eps)
            stepped = self.stepped[i] - rate * (step + self.decays[i] * weight)
            average = (1 - share) * self.averages[i] + share * stepped
            ops.assign(self.stepped[i], stepped)
            ops.assign(self.averages[i], average)
            ops.assign(weight, average + self.rest1 * (stepped - average))
        return self.one

    def evaluation_weights(self) -> AverageInPlace:
        return AverageInPlace(list(self.parameters), list(self.averages))


class AverageInPlace:
    """Evaluates x in place of y; the optimizer holds their state, so there is none to keep here."""

    def __init__(self, weights: Sequence[Parameter], averages: Sequence[Parameter]) -> None:
        self.weights, self.averages = weights, averages

    def after_update(self) -> None:
        pass

    @contextmanager
    def in_place(self) -> Iterator[bool]:
        pairs = zip(self.weights, self.averages, strict=True)
        averages = {weight.name: average.asnumpy() for weight, average in pairs}
        with values_restored(self.weights):
            set_values(self.weights, averages)
            yield True

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass
