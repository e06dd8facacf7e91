"""Values computed from the configuration."""

from __future__ import annotations

from msaccel.accel import steps
from msaccel.kernels import Products
from msaccel.schema import Config, DataSettings, ModelSettings


def transform(model: ModelSettings | type[ModelSettings], data: DataSettings | type[DataSettings]) -> str:
    """The transform that `data.transform=auto` stands for: it makes the data set's images the network's input.

    Empty if the network cannot read this data set.
    """
    return next((name for name in model.transforms if name in data.transforms), "")


def global_batch(config: Config) -> int:
    """Samples per update, over all ranks."""
    return config.train.batch_size * steps(config) * config.device.ranks


def arithmetic(config: Config) -> str:
    """`32 × 4 × 1`: micro-batch, accumulation steps, ranks."""
    return f"{config.train.batch_size} × {steps(config)} × {config.device.ranks}"


def products(config: Config) -> Products:
    """How the network multiplies."""
    if config.precision != "bf16":
        return Products.FLOAT32
    return Products.EMULATED if config.kernels.emulate_bf16 else Products.BFLOAT16


def summary(config: Config) -> str:
    """`lenet on mnist for 3 epochs`."""
    train = config.train
    limits = {"epoch": train.epochs, "update": train.max_updates}
    budget = [f"{limit:,} {name}{'s' if limit > 1 else ''}" for name, limit in limits.items() if limit]
    return f"{config.model.name} on {config.data.name} for {' or '.join(budget)}"
