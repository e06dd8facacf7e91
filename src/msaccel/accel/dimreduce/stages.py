"""The two stages of a job with dimension reduction: snapshots in the first, PCA and subspace steps in the second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mindspore import nn
from numpy.typing import NDArray

from msaccel.accel import BuildContext
from msaccel.accel.dimreduce import PCA, SNAPSHOTS, DimreduceSettings, basis, pca, snapshots
from msaccel.accel.dimreduce.bfgs import Constants
from msaccel.accel.dimreduce.layout import Layout
from msaccel.accel.dimreduce.update import SubspaceUpdate
from msaccel.checkpoint import weights as checkpoint
from msaccel.data.sampler import Sampler
from msaccel.distributed.communicator import Communicator
from msaccel.distributed.sync import broadcast_parameters
from msaccel.files import expand_user
from msaccel.schema import Config
from msaccel.step.batch_norm import RunningStatistics
from msaccel.step.stage import Stage, Updates
from msaccel.step.stage_budget import StageBudget
from msaccel.step.update import Update


def budgets(settings: DimreduceSettings, config: Config, first: Sampler, second: Sampler) -> list[StageBudget]:
    """Both stages, or the second alone; `train.epochs` is the whole job."""
    last = StageBudget(second, settings.epochs * second.updates_per_epoch, settings.alpha)
    if settings.second_stage_only:
        return [last]
    assert config.train.epochs is not None
    return [StageBudget(first, (config.train.epochs - settings.epochs) * first.updates_per_epoch), last]


def stages(settings: DimreduceSettings, builder: BuildContext, budgets: Sequence[StageBudget]) -> list[Stage]:
    """The stages with these budgets; the first uses the same update as a job without the method."""
    config, network = builder.config, builder.network
    options = builder.plain_options(range(config.device.ranks))
    inner = Update(network, builder.optimizer(), config.train.batch_size, single=False, options=options)
    subspace = Subspace(settings, network, inner.statistics, builder.folder, builder.comm)
    constants = Constants(
        rho=settings.rho,
        gamma=settings.gamma,
        alpha=settings.alpha,
        sigma=settings.sigma,
        max_trials=settings.line_search.max_trials,
        weight_decay=settings.weight_decay,
    )
    clip = config.accel.get("clip")
    max_norm = clip.max_norm if clip else None
    second = SubspaceUpdate(inner, layout=subspace.layout, constants=constants, max_norm=max_norm, comm=builder.comm)
    *first, last = budgets
    stages = [subspace.first(budget, builder.update(budget.updates)) for budget in first]
    return [*stages, subspace.second(last, second)]


@dataclass(frozen=True)
class Subspace:
    """What both stages share.

    Attributes:
        settings: of the method.
        network: the network to train.
        statistics: its running statistics, by rank.
        folder: of this job; the first rank writes snapshots and the PCA matrix there.
        comm: all ranks of the job.
    """

    settings: DimreduceSettings
    network: nn.Cell
    statistics: RunningStatistics
    folder: Path
    comm: Communicator

    @property
    def layout(self) -> Layout:
        weights = self.network.trainable_params()
        return Layout(tuple(w.name for w in weights), tuple(tuple(w.shape) for w in weights))

    def first(self, budget: StageBudget, update: Updates) -> Stage:
        """Stage 1: ordinary training, with snapshots."""
        wanted = set(snapshots.due(budget.updates, self.settings.snapshot.count))
        layout, folder = self.layout, self.folder / SNAPSHOTS

        def after(updates: int) -> None:
            if updates not in wanted:
                return
            with self.statistics.averaged():
                if self.comm.is_main:
                    weights = [weight.asnumpy() for weight in self.network.trainable_params()]
                    others = {other.name: other.asnumpy() for other in self.network.untrainable_params()}
                    snapshots.write(folder, layout, weights, updates, len(wanted), others)
            self.comm.barrier()  # a slow disk may take longer than a collective waits

        def resume(updates: int) -> None:
            if self.comm.is_main:
                snapshots.must_be_there(folder, [number for number in sorted(wanted) if number <= updates])

        return Stage(budget, update, after=after, resume=resume)

    def second(self, budget: StageBudget, update: SubspaceUpdate) -> Stage:
        """Stage 2; the PCA is computed, or read from a file, when it begins."""

        def begin() -> dict[str, float]:
            started = time.perf_counter()
            found = self.directions() if self.comm.is_main else None
            self.comm.barrier()
            broadcast_parameters(self.comm, self.network.trainable_params())
            if self.settings.second_stage_only:
                broadcast_parameters(self.comm, self.network.untrainable_params())
                self.statistics.begin_anew()
            components = self.settings.components
            update.enter(self.own_rows(found.matrix if found else None), components)
            seconds = time.perf_counter() - started
            return {"dimreduce/explained_variance": found.explained, "time/pca_s": seconds} if found else {}

        def resume(updates: int) -> None:
            matrix = self.matrix() if self.comm.is_main else None
            self.comm.barrier()
            update.enter(self.own_rows(matrix), self.settings.components)

        return Stage(budget, update, begin=begin, resume=resume)

    def matrix(self) -> NDArray[np.float32]:
        """P as it was found when the stage began."""
        given = self.settings.pca.path
        path = expand_user(given) if given else self.folder / PCA
        return basis.load(path, self.layout, self.settings.components).matrix

    def own_rows(self, matrix: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """The rows of P that belong to this rank; the first rank gives P (k, M)."""
        comm, components = self.comm, self.settings.components
        if comm.world_size == 1:
            assert matrix is not None
            return matrix
        own = basis.rows(comm.rank, comm.world_size, components)
        nothing = np.zeros(self.layout.size, np.float32)
        kept = []
        for number in range(components):
            row = comm.broadcast(nothing if matrix is None else matrix[number])
            if own.start <= number < own.stop:
                kept.append(row)
        return np.array(kept, np.float32).reshape(len(kept), self.layout.size)

    def directions(self) -> basis.Basis:
        """P, from a file or from snapshots; if stage 1 was another job, loads its last weights and statistics too."""
        given = self.settings
        parameters = list(self.network.get_parameters())
        if given.weights:
            checkpoint.read(expand_user(given.weights), parameters)
        if given.pca.path:
            return basis.load(expand_user(given.pca.path), self.layout, given.components)
        folder = expand_user(given.snapshots) if given.snapshots else self.folder / SNAPSHOTS
        found_snapshots = snapshots.find(folder, self.layout)
        if given.second_stage_only and not given.weights:
            checkpoint.read(found_snapshots[-1].path, parameters, marked=False)
        found = pca.principal(found_snapshots, given.components)
        found.save(self.folder / PCA)
        return found
