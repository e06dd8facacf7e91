"""Dimension-reduction training: quasi-Newton steps in the subspace that a first stage's weights moved in.

Stage 1 trains as usual and keeps snapshots of its weights; their k leading principal directions are the rows of P;
stage 2 takes BFGS steps with backtracking in those k dimensions and a momentum step for the rest of the gradient. The
formulas stand in `msaccel.accel.dimreduce.quasi_newton`, the PCA in `msaccel.accel.dimreduce.pca`.

Place: the whole apply slot of stage 2, with a window of its own. Optimizer and schedule belong to stage 1.

What not to expect: cheap updates. An update costs 3 forward-equivalents a sample and each trial of the line search one
more (`cost/forward_equivalents`). In our experience it is ahead at first, and plain training then catches up.
Source: tutorial 003; Li et al., arXiv 2103.11154.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msaccel.accel import BuildContext, Download, Method, filling
from msaccel.errors import UserError
from msaccel.schema import Config, leaves, setting

if TYPE_CHECKING:
    from msaccel.data.sampler import Sampler
    from msaccel.step.stage import Stage
    from msaccel.step.stage_budget import StageBudget

SNAPSHOTS, PCA = "snapshots", "pca.safetensors"
LARGE = 1024  # samples: with windows of 32 a fifth of the curvature pairs fails


@dataclass
class SnapshotSettings:
    count: int = setting(at_least=2, example="40")


@dataclass
class LineSearchSettings:
    max_trials: int = setting(at_least=1, example="20")


@dataclass
class PcaSettings:
    path: str | None = setting()


@dataclass
class DimreduceSettings:
    components: int = setting(at_least=1, example="32")
    epochs: int = setting(at_least=1, example="2")
    accum_steps: Any = setting(at_least=1, choices=("auto",), example="auto or 32")
    rho: float = setting(above=0, below=1, example="0.55")
    gamma: float = setting(at_least=0, below=1, example="0.9")
    alpha: float = setting(at_least=0, example="0.001")
    sigma: float = setting(above=0, below=1, example="0.4")
    weight_decay: float = setting(at_least=0, below=1, example="0")
    snapshot: SnapshotSettings = setting()
    line_search: LineSearchSettings = setting()
    from_run: str | None = setting()
    weights: str | None = setting()
    snapshots: str | None = setting()
    pca: PcaSettings = setting()

    @property
    def second_stage_only(self) -> bool:
        """Whether stage 1 was another job."""
        return any((self.from_run, self.weights, self.snapshots, self.pca.path))


def steps(settings: DimreduceSettings, config: Config) -> int:
    """Micro-batches per rank and update of stage 2."""
    if settings.accum_steps != "auto":
        return int(settings.accum_steps)
    return -(-LARGE // (config.train.batch_size * config.device.ranks))


class DimreduceMethod(Method):
    slot = "apply"
    settings = DimreduceSettings
    baseline = "same budget"
    artifacts = (SNAPSHOTS, PCA)

    def refusals(self, settings: DimreduceSettings, config: Config) -> Iterator[str]:
        own = "accel.dimreduce"
        accum, clip, train = config.accel.get("accum"), config.accel.get("clip"), config.train
        if accum and accum.reduction == "sum":
            yield (
                "accel.accum.reduction=sum with accel=dimreduce: its sum is not the gradient of the loss that the line "
                "search measures; write accel.accum.reduction=mean."
            )
        for slot in ("accumulate", "reduce") if settings.second_stage_only else ():
            if (first := filling(slot, config.accel)) not in (None, "adasum"):
                yield f"accel={first} acts in stage 1 of accel=dimreduce, which was another job; leave out {first}."
        if "adasum" in config.accel:
            yield "accel=adasum with accel=dimreduce: its combination is no gradient of the loss; keep one of them."
        if (transform := filling("transform", config.accel)) not in (None, "clip"):
            yield (
                f"accel={transform} with accel=dimreduce: its stage 2 can clip the gradient, and changes it in no "
                f"other way; leave out {transform}."
            )
        if clip and clip.mode == "value":
            yield "accel.clip.mode=value with accel=dimreduce has no place for it; write accel.clip.mode=norm."
        if config.optimizer.own_weights and not settings.second_stage_only:
            yield (
                f"optimizer={config.optimizer.name} keeps sequences of weights of its own, and stage 2 of "
                "accel=dimreduce moves none but the trained ones; write optimizer=momentum."
            )
        if train.max_updates is not None:
            yield (
                f"train.max_updates={train.max_updates} with accel=dimreduce would count updates of two sizes; "
                "write train.epochs, which is the whole job, and train.max_updates=null."
            )
        elif train.epochs is not None and settings.second_stage_only and train.epochs != settings.epochs:
            yield (
                f"{own}.epochs={settings.epochs} with train.epochs={train.epochs}: stage 1 was another job, so all "
                f"epochs are stage 2; write train.epochs={settings.epochs}."
            )
        elif train.epochs is not None and not settings.second_stage_only and train.epochs <= settings.epochs:
            yield (
                f"{own}.epochs={settings.epochs} leaves nothing of train.epochs={train.epochs} for stage 1; "
                f"write train.epochs={settings.epochs + 4}, which is the whole job."
            )
        if not settings.second_stage_only and settings.snapshot.count <= settings.components:
            yield (
                f"{own}.snapshot.count={settings.snapshot.count} cannot give {own}.components={settings.components} "
                f"directions; write {own}.snapshot.count={settings.components + 1} or more."
            )
        if settings.from_run and (settings.weights or settings.snapshots or settings.pca.path):
            yield f"{own}.from_run names weights and snapshots already; leave weights, snapshots and pca.path out."
        elif settings.pca.path and not settings.weights:
            yield f"{own}.pca.path has no weights to start from; write {own}.weights=CHECKPOINT too."
        elif settings.pca.path and settings.snapshots:
            yield f"{own}.pca.path and {own}.snapshots both say where the directions come from; keep one of them."
        elif settings.weights and not settings.snapshots and not settings.pca.path:
            yield f"{own}.weights has no directions to go in; write {own}.snapshots=FOLDER or {own}.pca.path=FILE too."

    def scheduled_epochs(self, settings: DimreduceSettings, epochs: int) -> int:
        return epochs - settings.epochs  # those of stage 1

    def without_effect(self, settings: DimreduceSettings, config: Config) -> dict[str, str]:
        if not settings.second_stage_only:
            return {}
        of_first = ("optimizer.", "schedule.", "accel.dimreduce.snapshot.")
        keys = [key for key, _, _ in leaves(config) if key.startswith(of_first)]
        return dict.fromkeys(keys, "accel=dimreduce without a first stage, to which they belong")

    def fetch(self, settings: DimreduceSettings, folder: Path, download: Download) -> None:
        """Puts the snapshots of `from_run` where a first stage would have written them."""
        if not settings.from_run or (folder / PCA).exists():  # a resumed job has what it needed of them
            return
        with TemporaryDirectory(dir=folder) as scratch:
            found = download(settings.from_run, f"dimreduce/{SNAPSHOTS}", Path(scratch))
            if found is None:
                raise UserError(
                    f"accel.dimreduce.from_run={settings.from_run} has no snapshots in this store; "
                    "write the id of a run with accel=dimreduce, as MLflow shows it."
                )
            shutil.rmtree(folder / SNAPSHOTS, ignore_errors=True)
            found.rename(folder / SNAPSHOTS)

    def fixed_budget(self, settings: DimreduceSettings) -> str:
        return "would have begun stage 2 at another update"

    def budgets(
        self, settings: DimreduceSettings, config: Config, sampler: Sampler, with_steps: Callable[[int], Sampler]
    ) -> list[StageBudget]:
        from msaccel.accel.dimreduce.stages import budgets

        return budgets(settings, config, sampler, with_steps(steps(settings, config)))

    def stages(self, settings: DimreduceSettings, builder: BuildContext, budgets: Sequence[StageBudget]) -> list[Stage]:
        from msaccel.accel.dimreduce.stages import stages

        return stages(settings, builder, budgets)


METHOD = DimreduceMethod()
