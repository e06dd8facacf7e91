"""Values computed from the configuration."""

from __future__ import annotations

from msaccel.accel import label, steps
from msaccel.schema import Config, ImageFolderSettings, ResNetSettings

TRANSFORMS = {"lenet": "lenet32", "mlp": "mlp28", "resnet50": "small"}
SHAPES = {"lenet": (1, 32, 32), "mlp": (1, 28, 28)}


def transform(config: Config) -> str:
    """The transform that `data.transform=auto` stands for: it makes the data set's images the network's input."""
    return "imagenet" if isinstance(config.data, ImageFolderSettings) else TRANSFORMS[config.model.name]


def input_shape(config: Config) -> tuple[int, int, int]:
    """Channels, height and width of the network's input."""
    model = config.model
    if isinstance(model, ResNetSettings) and model.image_size is not None:
        return 3, model.image_size, model.image_size
    return SHAPES[model.name]


def global_batch(config: Config) -> int:
    """Samples per update, over all ranks."""
    return config.train.batch_size * steps(config) * config.device.ranks


def arithmetic(config: Config) -> str:
    """`32 × 4 × 1`: micro-batch, accumulation steps, ranks."""
    return f"{config.train.batch_size} × {steps(config)} × {config.device.ranks}"


def accel_label(config: Config) -> str:
    return label(config.accel)


def summary(config: Config) -> str:
    """`lenet on mnist for 3 epochs`."""
    train = config.train
    limits = {"epoch": train.epochs, "update": train.max_updates}
    budget = [f"{limit:,} {name}{'s' if limit > 1 else ''}" for name, limit in limits.items() if limit]
    return f"{config.model.name} on {config.data.name} for {' or '.join(budget)}"
