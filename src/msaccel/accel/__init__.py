"""The methods: one package each, found here by name.

A method's package `accel/<name>/` holds its settings (a dataclass of `msaccel.schema.setting` fields, filled from
`conf/accel/<name>.yaml` under the method's own name) and `METHOD`, a `Method` that answers everything the rest of
msaccel asks about it. Builder, plan, loop, checks and compare name no method; a method names only those that it uses or
excludes. What runs in the graph is in its other modules, which `METHOD` imports when they are needed: the process that
launches jobs reads this and never loads MindSpore.

One update has slots in a fixed order, backward → accumulate → reduce → finite check → transform → apply. Before it a
method may change the network and the samples of an epoch, and after it evaluation may ask for other weights than the
trained ones. Two methods in one slot exclude each other. `docs/adding-a-method.md` adds one.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msaccel.schema import Config

if TYPE_CHECKING:
    from mindspore import Parameter, nn

    from msaccel.data.dataset import Dataset, EpochSamples
    from msaccel.data.sampler import Sampler
    from msaccel.distributed.communicator import Communicator
    from msaccel.step.frozen import LayerSchedule
    from msaccel.step.stage import EvaluationWeights, Stage, Updates
    from msaccel.step.stage_budget import StageBudget
    from msaccel.step.update import Update, UpdateOptions

# `backward` says which weights get gradients, `transform` changes the gradient of the update.
SLOTS = ("network", "data", "backward", "accumulate", "reduce", "finite_check", "transform", "apply", "evaluate")
# A run's id, an artifact's path and a folder to copy it into → the copy, None if there is no such artifact.
Download = Callable[[str, str, "Path"], "Path | None"]


class BuildContext(Protocol):
    """What `build_update` and `stages` build from; `msaccel.training.builder.Builder` says what each part is."""

    @property
    def network(self) -> nn.Cell: ...
    @property
    def config(self) -> Config: ...
    @property
    def comm(self) -> Communicator: ...
    @property
    def folder(self) -> Path: ...
    @property
    def rank(self) -> int | None: ...
    def optimizer(self) -> nn.Optimizer: ...
    def options(self, sharing: Sequence[int]) -> UpdateOptions: ...
    def plain_options(self, sharing: Sequence[int]) -> UpdateOptions: ...
    def update(self, updates: int) -> Updates: ...


class Method:
    """What a method says about itself. The defaults here are for methods to which a question does not apply.

    Attributes:
        slot: the one of `SLOTS` that it fills.
        settings: the dataclass of its keys.
        baseline: how a comparison calls the runs without it; empty: `without the method`.
        steps_key: the key that multiplies the samples of an update, if there is one; such a method has two baselines,
            of the same micro-batch and of the same global batch.
        artifacts: files and folders in the job's folder that MLflow keeps under the method's name.
        metrics: fields of `msaccel.training.metrics.Metrics` that it logs, each with its name in MLflow.
    """

    slot: str
    settings: type
    baseline: str = ""
    steps_key: str | None = None
    artifacts: tuple[str, ...] = ()
    metrics: tuple[tuple[str, str], ...] = ()

    # Asked by the process that launches the job; without MindSpore.

    def scheduled_epochs(self, settings: Any, epochs: int) -> int:
        """How many of a job's epochs follow the schedule of the rate."""
        return epochs

    def refusals(self, settings: Any, config: Config) -> Iterator[str]:
        """A sentence for each combination with other settings that cannot be right."""
        yield from ()

    def without_effect(self, settings: Any, config: Config) -> dict[str, str]:
        """Keys that these settings never read, each with the setting that makes it useless."""
        return {}

    def steps(self, settings: Any) -> int:
        """Micro-batches of a rank in one update; the most, where updates differ."""
        return 1

    def reduction(self, settings: Any) -> str:
        """`mean` over the samples of an update, or `sum` of the mean gradients of a rank's micro-batches."""
        return "mean"

    def rate_factor(self, settings: Any) -> float:
        """What the peak learning rate is multiplied by."""
        return 1.0

    def period(self, settings: Any) -> int | None:
        """The updates after which an update costs the same again, for measuring speed; None: its cost changes."""
        return 1

    def fixed_budget(self, settings: Any) -> str:
        """Why a resumed job may not change its budget, in words that follow the change; empty: it may."""
        return ""

    # Asked by the process that trains.

    def fetch(self, settings: Any, folder: Path, download: Download) -> None:
        """Puts what the job needs from earlier runs into its folder; called on the first rank only.

        Raises:
            UserError: it is not there.
        """

    def budgets(
        self, settings: Any, config: Config, sampler: Sampler, with_steps: Callable[[int], Sampler]
    ) -> list[StageBudget] | None:
        """The budgets of the job's stages, if the method has stages of its own.

        Args:
            sampler: of a job without them.
            with_steps: the same with another number of micro-batches in an update.
        """
        return None

    def change_network(self, settings: Any, network: nn.Cell) -> None:
        """Changes the network that has just been built, for training and for all that is done with its weights."""

    def epoch_samples(self, settings: Any, samples: Dataset, epochs: int) -> EpochSamples | None:
        """What the epochs of a job train on, if that is not always the training set as it is.

        Args:
            samples: the training set.
            epochs: of the whole job, counting a last one that is only begun.
        """
        return None

    def frozen_layers(self, settings: Any, seed: int, layers: int) -> LayerSchedule | None:
        """For each update of the job, how many of the network's first layers get no gradients; never all."""
        return None

    def stages(self, settings: Any, builder: BuildContext, budgets: Sequence[StageBudget]) -> list[Stage] | None:
        """The stages to which the `budgets` belong."""
        return None

    def build_update(self, settings: Any, builder: BuildContext, updates: int) -> Update | None:
        """The method's own kind of update for a stage of `updates`; `builder.options` fills every other slot."""
        return None

    def transform(self, settings: Any, weights: Sequence[Parameter]) -> nn.Cell | None:
        """A cell for the update's gradient: (gradients, global norm) → (gradients, 1.0 if it changed any)."""
        return None

    def evaluation_weights(self, settings: Any, weights: Sequence[Parameter], updates: int) -> EvaluationWeights | None:
        """Weights that are evaluated instead of the trained ones, in a job of `updates` updates."""
        return None


def updates_within(fraction: float, updates: int) -> int:
    """How many of a job's updates end within this fraction of it: 63 within 0.7 of 90, whose product is below 63."""
    return math.floor(round(fraction * updates, 9))


def methods() -> dict[str, Method]:
    """All methods by name, in the order of their slots, which is also the order of a label."""
    return _found(tuple(__path__))


@lru_cache
def _found(path: tuple[str, ...]) -> dict[str, Method]:
    names = sorted(module.name for module in pkgutil.iter_modules(path) if module.ispkg)
    found = {name: importlib.import_module(f"{__name__}.{name}").METHOD for name in names}
    return dict(sorted(found.items(), key=lambda item: SLOTS.index(item[1].slot)))


def chosen(config: Config) -> list[tuple[str, Method, Any]]:
    """Name, method and settings of each method that a job uses, in the order of slots."""
    return [(name, method, config.accel[name]) for name, method in methods().items() if name in config.accel]


def filling(slot: str, names: Iterable[str]) -> str | None:
    """The one of these methods that fills a slot."""
    known = methods()
    return next((name for name in names if known[name].slot == slot), None)


def label(names: Iterable[str]) -> str:
    """`accum+clip`: the methods in slot order, or `none`."""
    wanted = set(names)
    return "+".join(name for name in methods() if name in wanted) or "none"


def steps(config: Config) -> int:
    """Micro-batches of a rank in one update; the most, where updates differ."""
    return math.prod(method.steps(settings) for _, method, settings in chosen(config))


def steps_keys() -> list[str]:
    """The keys that multiply the samples of an update."""
    return [method.steps_key for method in methods().values() if method.steps_key]
