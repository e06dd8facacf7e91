"""The update of stage 2 on this process's network: gradients and trial losses from the device, the step on the host."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from mindspore import Parameter, Tensor, nn
from numpy.typing import NDArray

from msaccel.accel.dimreduce.bfgs import Constants
from msaccel.accel.dimreduce.layout import Layout
from msaccel.accel.dimreduce.projection import ShardedProjection
from msaccel.accel.dimreduce.quasi_newton import Measured, SubspaceStep
from msaccel.checkpoint.state import State, array_like, assign, by_name
from msaccel.distributed.communicator import SINGLE_PROCESS, Communicator
from msaccel.errors import CheckpointError
from msaccel.kernels import CrossEntropy, Outcome
from msaccel.kernels.graph import as_tensor
from msaccel.step.flat_parameters import Place
from msaccel.step.part_graphs import AgreeOnFinite, WindowGradient
from msaccel.step.update import Signals, Update, Window, Windows, sizes, windows_here

_OWN = "dimreduce."


class Loss(nn.Cell):
    """The mean loss of a micro-batch, float32; a trial forward changes nothing."""

    def __init__(self, network: nn.Cell, loss: CrossEntropy) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.loss = network, loss

    def construct(self, images: Tensor, labels: Tensor) -> Tensor:
        return self.loss(self.network(images), labels)[0]


class SubspaceUpdate:
    """Updates of stage 2, in place of `Update`.

    Args:
        inner: gives the gradients of a window; its optimizer is not used.
        layout: of the trainable weights.
        constants: of the step in the subspace.
        max_norm: bounds the gradient that enters the residual; None for no clipping.
        comm: all ranks of the job.
    """

    projection: ShardedProjection  # this and the next two from `enter` on
    step: SubspaceStep
    directions: NDArray[np.int32]  # the SHA-256 of this process's rows of P (8,)

    def __init__(
        self,
        inner: Update,
        *,
        layout: Layout,
        constants: Constants,
        max_norm: float | None,
        comm: Communicator = SINGLE_PROCESS,
    ) -> None:
        self.inner, self.layout, self.constants, self.max_norm = inner, layout, constants, max_norm
        self.comm = comm
        self.loss_scaler = inner.loss_scaler
        weights = inner.gradient.parameters
        self.window_gradient = WindowGradient(inner.accumulator, inner.loss_scaler, inner.options.reduce)
        self.agree, self.place = AgreeOnFinite(inner.loss_scaler), Place(weights)
        self.loss = Loss(inner.gradient.network, inner.gradient.loss).set_train()
        self.weights = weights
        self.extra_forwards = 0
        self._measured: list[Measured] = []

    def enter(self, rows: NDArray[np.float32], components: int) -> None:
        """Begins with this process's rows of P (k, M), which are orthonormal."""
        self.projection = ShardedProjection(rows, components, self.comm)
        self.directions = np.frombuffer(hashlib.sha256(np.ascontiguousarray(rows).data).digest(), np.int32)
        self.step = SubspaceStep(self.projection, components, self.layout.size, self.constants)

    def state_dict(self) -> dict[str, Parameter]:
        arrays = {**self.step.state_dict(), "directions": self.directions}
        if self._measured:  # since the last report
            arrays["trials"] = np.array([measured.trials for measured in self._measured], np.int64)
            arrays["shares"] = np.array([measured.share for measured in self._measured])
        named = {f"{_OWN}{name}": value for name, value in arrays.items()}
        own = [Parameter(Tensor(value), name=name, requires_grad=False) for name, value in named.items()]
        return by_name([*own, *self.loss_scaler.get_parameters()])

    def load_state_dict(self, state: State) -> None:
        """Restores the values of what `state_dict` returned, by name, after `enter` with the same P.

        Raises:
            CheckpointError: they belong to another job or of another P.
        """
        own = {name.removeprefix(_OWN): value for name, value in state.items() if name.startswith(_OWN)}
        if not np.array_equal(array_like(own, "directions", self.directions), self.directions):
            raise CheckpointError("The PCA matrix is not the one that the job was trained with; start a new job.")
        self.step.load_state_dict(own)
        assign(self.loss_scaler.get_parameters(), state)
        trials, shares = own.get("trials", np.zeros(0)).tolist(), own.get("shares", np.zeros(0)).tolist()
        self._measured = [Measured(trials, share) for trials, share in zip(trials, shares, strict=True)]

    def averaged(self) -> AbstractContextManager[None]:
        return nullcontext()

    def at(self, done: int, of: int) -> SubspaceUpdate:
        return self

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        self.inner.compile_sums(Tensor(images), Tensor(labels))
        self.window_gradient.compile(self.inner.one)
        self.agree.compile(self.inner.one)
        self.loss.compile(Tensor(images), Tensor(labels))
        self.place.compile(Tensor(np.zeros(self.layout.size, np.float32)))

    def __call__(self, ranks: Windows, rate: float) -> Signals:
        here = windows_here(ranks)
        counts, measured = self.inner.add_up(here)
        *gradients, norm = self.window_gradient(as_tensor(self.inner.factor(ranks)))
        _, agreed = self.agree(norm)
        outcome = Outcome(*agreed.asnumpy())
        clip, before = 1.0, self.projection.exchanged
        if outcome.applied:
            clip = 1.0 if self.max_norm is None else self.max_norm / max(float(outcome.norm), self.max_norm)
            total = sum(sum(sizes(window)) for window in ranks)
            loss = self.mean_loss([float(values.asnumpy()[0]) for values in measured], counts, total)
            with self.inner.statistics.untouched():
                self.move([gradient.asnumpy() for gradient in gradients], loss, list(here.values()), total, clip)
        outcome = outcome._replace(clipped=float(clip < 1))
        exchanged = self.projection.exchanged - before if len(ranks) > 1 else 0
        exchanged += self.inner.exchanged(len(ranks))
        return Signals(counts, measured, Tensor(np.array(outcome, np.float32)), exchanged)

    def mean_loss(self, losses: Sequence[float], counts: Sequence[int], total: int) -> float:
        """Over all samples of the update, from the mean losses of the micro-batches here; the same on every rank."""
        own = sum(loss * count for loss, count in zip(losses, counts, strict=True))
        return float(self.comm.all_sum(np.array([own]))[0]) / total

    def move(
        self, gradients: list[NDArray[np.float32]], loss: float, windows: list[Window], total: int, clip: float
    ) -> None:
        start = self.layout.flatten([weight.asnumpy() for weight in self.weights])
        pairs = [(Tensor(images), Tensor(labels)) for window in windows for images, labels in window]
        counts = [len(labels) for window in windows for _, labels in window]

        def loss_at(coordinates: NDArray[np.float64]) -> float:
            self.set_weights(start + self.projection.lift(coordinates))
            self.extra_forwards += total
            return self.mean_loss([float(self.loss(*pair).asnumpy()) for pair in pairs], counts, total)

        change, measured = self.step(self.layout.flatten(gradients), loss, loss_at, start, clip)
        self.set_weights(start + change)
        self._measured.append(measured)

    def set_weights(self, flat: NDArray[np.float32]) -> None:
        self.place(Tensor(flat))

    def evaluation_weights(self) -> None:
        return None

    def report(self) -> dict[str, float]:
        """Means over the updates since the last report, and totals."""
        measurements, self._measured = self._measured, []
        counters = self.step.counters
        totals = {
            "dimreduce/failed_searches": float(counters.failed),
            "dimreduce/skipped_pairs": float(counters.skipped),
            "dimreduce/resets": float(counters.resets),
        }
        if not measurements:
            return totals
        trials = [float(measured.trials) for measured in measurements]
        shares = [measured.share for measured in measurements]
        return totals | {
            "dimreduce/trials": float(np.mean(trials)),
            "dimreduce/gradient_share": float(np.mean(shares)),
        }
