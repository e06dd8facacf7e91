"""The keys of the optimizers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from msaccel.schema.fields import of_other_forms, setting

if TYPE_CHECKING:
    from msaccel.schema.config import Config


@dataclass
class OptimizerSettings:
    """An optimizer's keys, and what it says about itself.

    Attributes:
        own_weights: whether it keeps several sequences of weights, one of which is trained. Then nothing else may
            change the weights, and the optimizer fills the slot `evaluate` of an update.
        by_tensor: whether it steps each tensor separately, with state of its own: then an update can leave some tensors
            alone, and ranks can average state that has the tensors' shapes.
    """

    own_weights: ClassVar[bool] = False
    by_tensor: ClassVar[bool] = True
    name: str = setting()
    lr: float = setting(at_least=0, example="0.01")
    weight_decay: float = setting(at_least=0, example="0.0001")

    def refusals(self, config: Config) -> Iterator[str]:
        """A sentence for each combination with other settings that cannot be right."""
        yield from ()

    def without_effect(self) -> dict[str, str]:
        """Keys that these settings never read, each with the setting that makes it useless."""
        return {}

    @property
    def period(self) -> int:
        """The updates after which an update costs the same again."""
        return 1

    def too_few_updates(self, updates: int) -> str:
        """A sentence if a job of so many updates would never be what these settings name; else empty."""
        return ""


@dataclass
class MomentumSettings(OptimizerSettings):
    momentum: float = setting(at_least=0, below=1, example="0.9")
    nesterov: bool = setting()

    def refusals(self, config: Config) -> Iterator[str]:
        if self.nesterov and not self.momentum:
            yield "optimizer.nesterov=true has no effect with optimizer.momentum=0; leave one of them out."


@dataclass
class SgdSettings(OptimizerSettings):
    """Plain stochastic gradient descent."""


@dataclass
class AdamSettings(OptimizerSettings):
    """Adam with L2 weight decay, AdamW with decoupled decay, and LAMB."""

    beta1: float = setting(above=0, below=1, example="0.9")
    beta2: float = setting(above=0, below=1, example="0.999")
    eps: float = setting(above=0, example="1e-8")


@dataclass
class LarsSettings(OptimizerSettings):
    """Layer-wise adaptive rates for momentum."""

    momentum: float = setting(at_least=0, below=1, example="0.9")
    eta: float = setting(above=0, at_most=1, example="0.001")


@dataclass
class LionSettings(OptimizerSettings):
    """Steps by the sign of a momentum."""

    beta1: float = setting(at_least=0, below=1, example="0.9")
    beta2: float = setting(at_least=0, below=1, example="0.99")


@dataclass
class MuonSettings(OptimizerSettings):
    """Orthogonal steps for hidden matrices; `adamw_lr` and the keys after it are for AdamW, which steps all else."""

    by_tensor = False  # two optimizers in one, each for some of the tensors
    lr: float = setting(above=0, example="0.02")  # not 0: AdamW's rate is scaled in proportion to it
    momentum: float = setting(at_least=0, below=1, example="0.95")
    nesterov: bool = setting()
    adamw_lr: float = setting(at_least=0, example="0.001")
    beta1: float = setting(above=0, below=1, example="0.9")
    beta2: float = setting(above=0, below=1, example="0.95")
    eps: float = setting(above=0, example="1e-8")


@dataclass
class ShampooSettings(OptimizerSettings):
    """Preconditioners for the rows and columns of each matrix, with steps of AdamW's length."""

    beta1: float = setting(at_least=0, below=1, example="0.9")
    beta2: float = setting(at_least=0, below=1, example="0.999")
    eps: float = setting(above=0, example="1e-8")
    ridge: float = setting(above=0, at_most=1, example="1e-6")
    interval: int = setting(at_least=1, example="100")
    max_size: int = setting(at_least=1, at_most=8192, example="1024")

    @property
    def period(self) -> int:
        return self.interval

    def too_few_updates(self, updates: int) -> str:
        if updates >= self.interval:
            return ""
        return (
            f"optimizer.interval={self.interval} leaves all {updates} updates of the job to AdamW's step; "
            f"write optimizer.interval={max(1, updates // 10)}."
        )


@dataclass
class ScheduleFreeSettings(OptimizerSettings):
    """An average of the weights in place of a schedule; `beta2` and `eps` belong to `form=adamw`."""

    own_weights = True
    by_tensor = False  # its averaging weights count updates of all tensors
    form: str = setting(choices=("sgd", "adamw"))
    beta1: float = setting(at_least=0, below=1, example="0.9")
    beta2: float = setting(at_least=0, below=1, example="0.999")
    eps: float = setting(above=0, example="1e-8")

    def refusals(self, config: Config) -> Iterator[str]:
        if config.schedule.name != "constant":
            yield (
                f"optimizer=schedulefree with schedule={config.schedule.name}: its average takes the place of a rate "
                "that falls; write schedule=constant, with schedule.warmup=0.05 for a warm-up."
            )

    def without_effect(self) -> dict[str, str]:
        return of_other_forms("optimizer", self.form, {"beta2": "adamw", "eps": "adamw"})
