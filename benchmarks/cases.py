"""The networks that are measured, and how long; each side is told of them by the same overrides of msaccel's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A network with its data.

    Attributes:
        title: as in the table.
        overrides: the job, as for `run.py`.
        warm_up: updates before the clock starts, on every side.
        bare: calls of the bare step.
        trial: steps of one trial of a setting of PyTorch's.
        tutorial: steps of the tutorials' way that are timed, and those before them.
        slow: the tutorials' way takes half a minute or more for a step, so it runs in the first round only.
        fallback: whether msaccel is also measured without operators of its own.
    """

    title: str
    overrides: tuple[str, ...]
    warm_up: int
    bare: int
    trial: int
    tutorial: tuple[int, int]
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
}  # fmt: skip
