"""Muon: momentum whose steps are made orthogonal, for the matrices inside a network.

With G the gradient of a hidden matrix W, of m rows and n columns, η the rate, μ the momentum and λ the weight decay:

    B ← μ B + G
    O = NS₅(G + μ B), or NS₅(B) with nesterov=false
    W ← (1 − η λ) W − η √max(1, m / n) O

NS₅ is five Newton–Schulz steps, which move singular values close to 1 (0.68 to 1.20) and keep the directions:

    X = M / ‖M‖,    X ← a X + (b A + c A²) X with A = X Xᵀ,    (a, b, c) = (3.4445, −4.7750, 2.0315)

The kernel of a convolution is a matrix of (output channels, all else). As its author advises, Muon moves hidden
matrices alone: first and last layers, embeddings, biases and the parameters of normalisation layers are moved by AdamW
(that of `optimizer=adamw`) at a peak rate of its own, on the same schedule.
Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon and the code that it names, where momentum is a
mean (1 − μ times B: the same direction) and NS₅ runs in bfloat16. The factor √max(1, m / n) is the code's too.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.errors import ConfigError
from msaccel.kernels import Adam
from msaccel.schema import MuonSettings
from msaccel.training.optimizers.weights import Weights

STEPS = 5
A, B, C = 3.4445, -4.7750, 2.0315
_EPSILON = 1e-7  # added to the norm, for a matrix of zeros


def orthogonalised(matrix: Tensor) -> Tensor:
    """NS₅ of a matrix (m, n), computed on the side that makes the smaller products."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (ops.sqrt((x * x).sum()) + _EPSILON)
    for _ in range(STEPS):
        square = ops.matmul(x, x.T)
        x = A * x + ops.matmul(B * square + C * ops.matmul(square, square), x)
    return x.T if tall else x


class Muon(nn.Optimizer):
    """Inputs: gradients, float32, in the order of the weights."""

    def __init__(self, weights: Weights, settings: MuonSettings) -> None:
        super().__init__(settings.lr, list(weights.parameters))
        self.momentum, self.nesterov = settings.momentum, settings.nesterov
        hidden: list[int] = []
        others: list[int] = []
        for place, parameter in enumerate(weights.parameters):
            is_hidden = parameter.ndim > 1 and parameter.name not in weights.outer
            (hidden if is_hidden else others).append(place)
        if not hidden:
            raise ConfigError(
                "optimizer=muon moves matrices between the first and the last layer, and this network has none; write "
                "optimizer=adamw."
            )
        self.hidden, self.others = tuple(hidden), tuple(others)
        decays = weights.decays(settings.weight_decay)
        self.decays = tuple(decays[place] for place in hidden)
        self.momenta = ms.ParameterTuple([self.parameters[place] for place in hidden]).clone("momentum", init="zeros")
        self.one = Tensor(1.0, ms.float32)
        if others:
            self.adamw = Adam(
                [self.parameters[place] for place in others],
                [decays[place] for place in others],
                True,
                learning_rate=settings.adamw_lr,
                beta1=settings.beta1,
                beta2=settings.beta2,
                eps=settings.eps,
            )
            own = {id(self.parameters[place]) for place in others}
            for parameter in self.adamw.get_parameters():
                if id(parameter) not in own:
                    parameter.name = f"adamw.{parameter.name}"
            self.of_adamw = settings.adamw_lr / settings.lr  # of the rate of an update

    def construct(self, gradients: tuple[Tensor, ...]) -> Tensor:
        rate = self.learning_rate * 1
        for i in range(len(self.hidden)):
            weight, gradient = self.parameters[self.hidden[i]], gradients[self.hidden[i]]
            momentum = self.momentum * self.momenta[i] + gradient
            ops.assign(self.momenta[i], momentum)
            if self.nesterov:
                momentum = gradient + self.momentum * momentum
            matrix = momentum.reshape(momentum.shape[0], -1)
            scale = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
            step = scale * orthogonalised(matrix).reshape(weight.shape)
            ops.assign(weight, (1 - rate * self.decays[i]) * weight - rate * step)
        if len(self.others) == 0:
            return self.one
        rest: tuple[Tensor, ...] = ()
        for place in self.others:
            rest = rest + (gradients[place],)
        known = ops.assign(self.adamw.learning_rate, rate * self.of_adamw)
        return ops.depend(self.one, self.adamw(rest, ops.depend(self.one, known)))
