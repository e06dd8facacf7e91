"""The update with Adasum: windows are added up part by part, and the parts' gradients or steps are combined."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from numpy.typing import NDArray

from msaccel.accel import BuildContext, steps
from msaccel.accel.adasum import AdasumSettings, parts
from msaccel.accel.adasum.all_reduce import AdasumAllReduce, bytes_exchanged
from msaccel.accel.adasum.graph import ApplyCombined, StepTogether
from msaccel.accel.adasum.in_turn import StepInTurn
from msaccel.checkpoint.state import by_name
from msaccel.distributed.collectives import GatherNorms
from msaccel.distributed.communicator import Communicator
from msaccel.kernels import Adasum
from msaccel.kernels.flat import Tensors
from msaccel.kernels.graph import as_tensor
from msaccel.schema import DeviceSettings
from msaccel.step.graphs import ApplyGradients
from msaccel.step.part_graphs import CheckParts, PartGradient, WindowGradient
from msaccel.step.update import Signals, Update, UpdateOptions, Windows, windows_here


class AdasumUpdate(Update):
    """One update over parts, each of one or more ranks.

    Args:
        network: as for `Update`.
        optimizers: one for each part of this process in delta mode, of one kind and over the same parameters; else a
            single one.
        batch_size: as for `Update`.
        parts: the ranks of each part; a power of two of them.
        delta: combine the steps of the parts' optimizers, not their gradients.
        one_batch: a part is one rank, whose window is one micro-batch, so nothing has to be added up.
        comm: of this process, which trains one rank of one part, or all parts if it is the only one.
        device: all ranks.
        options: as for `Update`; `reduce` sums over the ranks of a part.
    """

    def __init__(
        self,
        network: nn.Cell,
        optimizers: Sequence[nn.Optimizer],
        batch_size: int,
        *,
        parts: Sequence[Sequence[int]],
        delta: bool,
        one_batch: bool,
        options: UpdateOptions,
        comm: Communicator,
        device: DeviceSettings,
    ) -> None:
        super().__init__(network, optimizers[0], batch_size, single=False, options=options)
        self.parts, self.delta, self.optimizers = parts, delta, optimizers
        alone = comm.world_size == 1
        self.here = [part for part in parts if alone or comm.rank in part]
        weights = optimizers[0].parameters
        self.zeros = tuple(Tensor(np.zeros(weight.shape, np.float32)) for weight in weights)
        self.bytes_exchanged = bytes_exchanged([weight.size for weight in weights], len(parts), len(parts[0]))
        self.zero = Tensor(0.0, ms.float32)
        self.window_gradient = WindowGradient(self.accumulator, self.loss_scaler, options.reduce)
        self.one_batch = one_batch
        if one_batch:
            self.part_gradient = PartGradient(self.gradient, self.loss_scaler, options.lower_precision).set_train()
        self.combine: nn.Cell
        if alone:
            self.combine, gather = Adasum(len(parts), len(weights)), None
        else:
            self.combine = AdasumAllReduce([weight.shape for weight in weights], parts, comm, device)
            gather = GatherNorms(len(parts))
        self.finish: ApplyCombined | StepTogether | StepInTurn
        if delta and getattr(self.optimizer, "fused", False) and hasattr(self.optimizer, "differences"):
            check_parts = CheckParts(self.loss_scaler, gather)
            self.finish = StepTogether(optimizers, check_parts, self.combine, options.transform).set_train()
        elif delta:
            self.finish = StepInTurn(optimizers, self.loss_scaler, gather, self.combine, options.transform)
        else:
            apply_gradients = ApplyGradients(self.optimizer, self.loss_scaler, options.transform, scaled=False)
            self.finish = ApplyCombined(self.combine, apply_gradients).set_train()

    def state_dict(self) -> dict[str, Parameter]:
        optimizers = [parameter for optimizer in self.optimizers for parameter in optimizer.get_parameters()]
        bases = self.finish.bases if isinstance(self.finish, StepInTurn) else ()
        return by_name([*optimizers, *self.loss_scaler.get_parameters(), *bases])

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        number, micro_batch = Tensor(1.0, ms.float32), (Tensor(images), Tensor(labels))
        if self.one_batch:
            self.part_gradient.compile(*micro_batch, number)
        else:
            self.compile_sums(*micro_batch)
            self.window_gradient.compile(number)
        here = len(self.here)
        self.finish.compile(number, *([number] * 2 * here if self.delta else ()), *self.zeros * here)

    def __call__(self, ranks: Windows, rate: float) -> Signals:
        samples: tuple[int, ...] = ()
        measured: tuple[Tensor, ...] = ()
        had_samples: tuple[Tensor, ...] = ()
        norms: tuple[Tensor, ...] = ()
        gradients: tuple[Tensor, ...] = ()
        for part in self.here:
            weight = self.weight([ranks[rank] for rank in part])
            if not weight:  # nothing to learn from: a zero vector, and no step
                had_samples, norms = (*had_samples, self.zero), (*norms, self.zero)
                gradients = gradients + self.zeros
                continue
            counts, micro_batches, gradient, norm = self.gradient_of(part, ranks, weight)
            samples, measured = samples + counts, measured + micro_batches
            had_samples, norms = (*had_samples, self.one), (*norms, norm)
            gradients = gradients + gradient
        checked = (*had_samples, *norms) if self.delta else ()
        outcome = self.finish(as_tensor(rate), *checked, *gradients)
        return Signals(samples, measured, outcome, self.bytes_exchanged)

    def gradient_of(
        self, part: Sequence[int], ranks: Windows, weight: float
    ) -> tuple[tuple[int, ...], tuple[Tensor, ...], Tensors, Tensor]:
        """A part's samples here, the signals of its micro-batches, its gradient and the norm of that."""
        own = {rank: window for rank, window in windows_here(ranks).items() if rank in part}
        factor = self.factor([ranks[rank] for rank in part])
        if self.one_batch:
            ((rank, ((images, labels),)),) = own.items()
            with self.statistics.of(rank):
                batch = (as_tensor(images), as_tensor(labels), as_tensor(weight * factor))
                signals, *gradient, norm = self.part_gradient(*batch)
            return (len(labels),), (signals,), tuple(gradient), norm
        samples, measured = self.add_up(own)
        *gradient, norm = self.window_gradient(as_tensor(factor))
        return samples, measured, tuple(gradient), norm


def build(settings: AdasumSettings, builder: BuildContext) -> AdasumUpdate:
    """The update of a job; in delta mode with an optimizer for each part of this process."""
    device, weights = builder.config.device, builder.network.trainable_params()
    each = parts(settings, device)
    here = [number for number, part in enumerate(each) if builder.rank is None or builder.rank in part]
    delta = settings.apply == "delta"
    own = {number: builder.optimizer() for number in (here if delta else here[:1])}
    known = {id(parameter) for parameter in weights}
    for number, optimizer in own.items() if len(own) > 1 else ():  # a single one keeps its names, the same on all ranks
        for parameter in optimizer.get_parameters():
            if id(parameter) not in known:
                parameter.name = f"part{number}.{parameter.name}"
    return AdasumUpdate(
        builder.network,
        list(own.values()),
        builder.config.train.batch_size,
        parts=each,
        delta=delta,
        one_batch=max(map(len, each)) * steps(builder.config) == 1,
        comm=builder.comm,
        device=device,
        options=builder.options(each[here[0]]),
    )
