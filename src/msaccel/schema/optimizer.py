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
        own_weights: whether it keeps sequences of weights of its own, of which those that are trained are one. Nothing
            else may move these then, and it fills the slot `evaluate` of an update.
        by_tensor: whether it moves each tensor by itself, with state of that shape: an update can leave some alone, and
            ranks can average their state.
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
        """Keys that these settings never read, and with what they have no effect."""
        return {}


@dataclass
class MomentumSettings(OptimizerSettings):
    momentum: float = setting(at_least=0, below=1, example="0.9")
    nesterov: bool = setting()


@dataclass
class SgdSettings(OptimizerSettings):
    """Plain stochastic gradient descent."""


@dataclass
class AdamSettings(OptimizerSettings):
    """Adam with L2 weight decay, AdamW with decoupled decay, and LAMB."""

    beta1: float = setting(at_least=0, below=1, example="0.9")
    beta2: float = setting(at_least=0, below=1, example="0.999")
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
    """Orthogonal steps for hidden matrices; `adamw_lr` and what follows it are of AdamW, which moves all else."""

    by_tensor = False  # two optimizers in one, each with a part of the tensors
    lr: float = setting(above=0, example="0.02")  # the schedule of AdamW is in proportion to it
    momentum: float = setting(at_least=0, below=1, example="0.95")
    nesterov: bool = setting()
    adamw_lr: float = setting(at_least=0, example="0.001")
    beta1: float = setting(at_least=0, below=1, example="0.9")
    beta2: float = setting(at_least=0, below=1, example="0.95")
    eps: float = setting(above=0, example="1e-8")


@dataclass
class ScheduleFreeSettings(OptimizerSettings):
    """An average of the weights in the place of a schedule; `beta2` and `eps` are of `form=adamw`."""

    own_weights = True
    by_tensor = False  # the weights of its average count updates of all
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
