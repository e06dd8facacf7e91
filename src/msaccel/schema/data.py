"""The keys of the data sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from msaccel.schema.fields import setting

if TYPE_CHECKING:
    from msaccel.schema.model import ModelSettings


@dataclass
class DataSettings:
    """A data set's keys, and what is known of it before it is loaded.

    Attributes:
        transforms: values of `data.transform` that can turn its samples into a network's input.
        image_size: height and width of its images after these transforms; None if that is up to the network.
        seeded: whether the samples are drawn from the job's seed. Runs with different seeds then have different
            samples, and may still be compared.
    """

    transforms: ClassVar[tuple[str, ...]] = ()
    image_size: ClassVar[int | None] = None
    seeded: ClassVar[bool] = False
    name: str = setting()
    transform: str = setting()
    limit_train: int | None = setting(at_least=1, example="null for all, or 1000")
    limit_eval: int | None = setting(at_least=1, example="null for all, or 1000")
    val_fraction: float = setting(at_least=0, below=1, example="0.1")

    def class_count(self) -> int | None:
        """The number of classes; None if only the files say it."""
        return None

    def train_count(self) -> int | None:
        """The number of training samples, validation samples included; None if only the files say it."""
        return None

    def refusals(self, model: ModelSettings) -> Iterator[str]:
        """A sentence for each of its keys that contradicts another one or does not fit the network."""
        yield from ()

    def without_effect(self) -> dict[str, str]:
        """Keys that these settings never read, each with the setting that makes it useless."""
        return {}


@dataclass
class DownloadedDataSettings(DataSettings):
    """Files that are downloaded once, or the user's own."""

    root: str | None = setting()
    cache: str = setting()


@dataclass
class IdxDataSettings(DownloadedDataSettings):
    """MNIST, and data sets of its form and size: four idx files."""

    transforms = ("lenet32", "mlp28", "small")
    image_size = 32

    def class_count(self) -> int:
        return 10

    def train_count(self) -> int:
        return 60_000
