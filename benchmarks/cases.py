"""The networks to measure and for how long. Every side configures them by the same msaccel overrides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A network with its data.

    Attributes:
        title: the heading of its table.
        overrides: the job's overrides, as for `run.py`.
        warm_up: updates before timing starts, on every side.
        bare: calls of the bare training step, without a loop around it.
        trial: steps of each trial of a PyTorch setting.
        tutorial: timed steps of the tutorials' implementation, and warm-up steps before them; None: no tutorial has it.
        slow: a step of the tutorials' implementation takes half a minute or more, so it runs in the first round only.
        fallback: whether msaccel is also measured without its native operators.
    """

    title: str
    overrides: tuple[str, ...]
    warm_up: int
    bare: int
    trial: int
    tutorial: tuple[int, int] | None = None
    slow: bool = False
    fallback: bool = False


CASES = {
    "lenet32": Case("LeNet, batch 32", (), 50, 500, 200, (200, 20), fallback=True),
    "lenet256": Case("LeNet, batch 256", ("train.batch_size=256",), 20, 100, 40, (60, 20)),
    "mlp32": Case("MLP, batch 32", ("model=mlp", "train.epochs=1"), 50, 500, 200, (400, 20)),
    "resnet50": Case(
        "ResNet-50, 224 × 224, batch 8",
        (
            "model=resnet50", "model.image_size=224", "data=synthetic", "data.train_size=176", "data.test_size=16",
            "train.batch_size=8", "train.epochs=1",
        ),
        warm_up=2, bare=8, trial=2, tutorial=(1, 1), slow=True, fallback=True,
    ),
    "resnet18": Case(
        "ResNet-18, 32 × 32, batch 64",
        (
            "model=resnet50", "model.depth=18", "model.image_size=32", "data=cifar10", "data.augment=false",
            "data.limit_eval=1000", "train.batch_size=64", "train.epochs=null", "train.max_updates=32",
        ),
        warm_up=2, bare=10, trial=3, tutorial=(1, 1), slow=True,
    ),
    "gpt": Case(
        "GPT, 4 layers of 128, 12 blocks of 64 characters",
        ("experiment=gpt_shakespeare", "train.max_updates=300", "data.limit_eval=100"),
        warm_up=20, bare=100, trial=40,
    ),
    "airbench": Case(
        "airbench94, 32 × 32, batch 500, momentum",
        (
            "model=airbench", "data=cifar10", "data.augment=false", "data.limit_eval=1000", "train.batch_size=500",
            "train.epochs=null", "train.max_updates=16",
        ),
        warm_up=2, bare=6, trial=2,
    ),
}  # fmt: skip
