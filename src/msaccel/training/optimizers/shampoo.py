"""Shampoo: preconditioners for the rows and the columns of each matrix, and steps as long as those of AdamW.

With G the gradient of a tensor W in update t, a matrix of (first axis, all else), η the rate, λ the weight decay, and U
the step of AdamW:

    M ← β₁ M + (1 − β₁) G,  V ← β₂ V + (1 − β₂) G²,  U = √(1 − β₂ᵗ) / (1 − β₁ᵗ) · M / (√V + ε)
    L ← β₂ L + (1 − β₂) G Gᵀ,  R ← β₂ R + (1 − β₂) Gᵀ G
    P = root(L) M root(R) with root(A) = (A / λmax + ridge I)^(−1/4), λmax the largest eigenvalue of A
    W ← (1 − η λ) W − η (‖U‖ / ‖P‖) P

Roots are computed anew in every `interval`-th update. Divisors such as λmax, or the bias correction of L and R, cancel
in P / ‖P‖. An axis longer than `max_size` has no preconditioner; the other one's exponent is −1/2 then. What has none,
such as all vectors, takes the step U, and so does everything before its first roots.
Sources: Gupta et al., arXiv 1802.09568; means with β₁ and β₂, the length of another optimizer's step and the late start
as in Meta's code (Shi et al., arXiv 2309.06497), the ridge relative to λmax as in Google's (Anil et al., arXiv
2002.09018).
"""

from __future__ import annotations

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore.scipy.linalg import eigh

from msaccel.errors import ConfigError
from msaccel.schema import ShampooSettings
from msaccel.training.optimizers.trust_ratio import norm
from msaccel.training.optimizers.weights import Weights

_LEAST = 1e-30  # a norm or an eigenvalue below this counts as zero
_ABSENT = -1


def inverse_root(matrix: Tensor, exponent: float, ridge: float) -> Tensor:
    """root(A) of a matrix whose eigenvalues are not negative but for rounding; computed in float64."""
    values, vectors = eigh(ops.cast(matrix, ms.float64))
    values = ops.maximum(values, 0.0)
    values = values / ops.maximum(values[-1], _LEAST) + ridge
    return ops.cast(ops.matmul(vectors * ops.pow(values, exponent), vectors.T), ms.float32)


class Shampoo(nn.Optimizer):
    """Inputs: gradients, float32, in the order of the weights."""

    def __init__(self, weights: Weights, settings: ShampooSettings) -> None:
        if ms.get_context("device_target") == "Ascend":
            raise ConfigError(
                "optimizer=shampoo needs eigenvalues, which MindSpore computes on CPUs and GPUs alone; write "
                "optimizer=muon."
            )
        super().__init__(settings.lr, list(weights.parameters))
        self.beta1, self.beta2, self.eps = settings.beta1, settings.beta2, settings.eps
        self.ridge, self.interval = settings.ridge, settings.interval
        self.decays = weights.decays(settings.weight_decay)
        self.moments1 = self.parameters.clone(prefix="moment1", init="zeros")
        self.moments2 = self.parameters.clone(prefix="moment2", init="zeros")
        products: list[Parameter] = []  # L and R of all tensors
        roots: list[Parameter] = []
        exponents: list[float] = []
        places: list[tuple[int, int]] = []  # for each tensor, those of its L and its R in these lists
        for weight in weights.parameters:
            sides = {}
            if weight.ndim > 1:
                sizes = {"left": weight.shape[0], "right": weight.size // weight.shape[0]}
                sides = {side: size for side, size in sizes.items() if size <= settings.max_size}
            of_weight = dict(zip(sides, range(len(products), len(products) + len(sides)), strict=True))
            places.append((of_weight.get("left", _ABSENT), of_weight.get("right", _ABSENT)))
            for side, size in sides.items():
                products.append(_zeros(size, f"{side}.{weight.name}"))
                roots.append(_zeros(size, f"root.{side}.{weight.name}"))
                exponents.append(-0.5 / len(sides))
        if not (products or weights.partial):
            raise ConfigError(
                f"optimizer=shampoo with optimizer.max_size={settings.max_size} finds no matrix with an axis as short "
                "as that; write optimizer=adamw."
            )
        self.products, self.roots = ParameterTuple(products), ParameterTuple(roots)
        self.exponents, self.places = tuple(exponents), tuple(places)
        # 1 − βᵗ, as the moments of a gradient of ones: rounded like these.
        self.correction1 = Parameter(Tensor(0.0, ms.float32), name="correction1", requires_grad=False)
        self.correction2 = Parameter(Tensor(0.0, ms.float32), name="correction2", requires_grad=False)
        self.updates = Parameter(Tensor(0.0, ms.float32), name="updates", requires_grad=False)
        self.one = Tensor(1.0, ms.float32)

    def construct(self, gradients: tuple[Tensor, ...]) -> Tensor:
        rate = self.learning_rate * 1
        for i in range(len(self.parameters)):
            left, right = self.places[i]
            matrix = gradients[i].reshape(gradients[i].shape[0], -1)
            if left != _ABSENT:
                self.add(left, ops.matmul(matrix, matrix.T))
            if right != _ABSENT:
                self.add(right, ops.matmul(matrix.T, matrix))
        updates = self.updates + 1
        ops.assign(self.updates, updates)
        if updates % self.interval == 0:
            for i in range(len(self.roots)):
                ops.assign(self.roots[i], inverse_root(self.products[i], self.exponents[i], self.ridge))
        correction1 = self.beta1 * self.correction1 + (1 - self.beta1)
        correction2 = self.beta2 * self.correction2 + (1 - self.beta2)
        ops.assign(self.correction1, correction1)
        ops.assign(self.correction2, correction2)
        for i in range(len(self.parameters)):
            weight, gradient = self.parameters[i], gradients[i]
            moment1 = self.beta1 * self.moments1[i] + (1 - self.beta1) * gradient
            moment2 = self.beta2 * self.moments2[i] + (1 - self.beta2) * gradient * gradient
            ops.assign(self.moments1[i], moment1)
            ops.assign(self.moments2[i], moment2)
            step = ops.sqrt(correction2) / correction1 * moment1 / (ops.sqrt(moment2) + self.eps)
            left, right = self.places[i]
            if left != _ABSENT or right != _ABSENT:
                direction = moment1.reshape(weight.shape[0], -1)
                if left != _ABSENT:
                    direction = ops.matmul(self.roots[left], direction)
                if right != _ABSENT:
                    direction = ops.matmul(direction, self.roots[right])
                size = norm(direction)  # zero before the first roots, which are zeros until then
                grafted = norm(step) / ops.maximum(size, _LEAST) * direction.reshape(weight.shape)
                step = ops.select(size > _LEAST, grafted, step)
            ops.assign(weight, (1 - rate * self.decays[i]) * weight - rate * step)
        return self.one

    def add(self, place: int, product: Tensor) -> None:
        """Takes the product of a gradient with itself into the mean of these."""
        ops.assign(self.products[place], self.beta2 * self.products[place] + (1 - self.beta2) * product)


def _zeros(size: int, name: str) -> Parameter:
    return Parameter(ops.zeros((size, size), ms.float32), name=name, requires_grad=False)
