"""The keys of the networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from msaccel.schema.fields import setting

if TYPE_CHECKING:
    from msaccel.schema.data import DataSettings

NORMAL_INIT = r"default|normal\((\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\)"


@dataclass
class ModelSettings:
    """A network's keys.

    Attributes:
        transforms: values of `data.transform` that make its input; `auto` is the first of them that a data set has.
        any_size: whether it reads images of any height and width, also of another one than `input_shape`.
        has_convolutions: whether some of its weights have three axes or more.
    """

    transforms: ClassVar[tuple[str, ...]] = ()
    any_size: ClassVar[bool] = False
    has_convolutions: ClassVar[bool] = True
    name: str = setting()
    init: str = setting(pattern=NORMAL_INIT, example="default or normal(0.01)")
    classes: int | None = setting(at_least=2, example="null for as many as the data has, or 10")

    def input_shape(self) -> tuple[int, ...]:
        """The shape of a sample that it reads; of an image channels, height and width."""
        raise NotImplementedError

    def complete(self, data: DataSettings) -> None:
        """Sets keys that are null to what is known of the data; what only its files tell is set when they are read."""
        if self.classes is None:
            self.classes = data.class_count()

    def refusals(self) -> Iterator[str]:
        """A sentence for each of its keys that contradicts another one."""
        yield from ()


@dataclass
class LeNetSettings(ModelSettings):
    """LeNet5 of tutorial 000."""

    transforms = ("lenet32",)

    def input_shape(self) -> tuple[int, int, int]:
        return 1, 32, 32


@dataclass
class MlpSettings(ModelSettings):
    """The 784-512-512-10 network of tutorial 001."""

    transforms = ("mlp28",)
    has_convolutions = False

    def input_shape(self) -> tuple[int, int, int]:
        return 1, 28, 28


@dataclass
class ResNetSettings(ModelSettings):
    """The residual network of tutorials 003 and 004."""

    transforms = ("small", "imagenet")
    any_size = True  # a mean over height and width comes before the dense layer
    depth: int = setting(choices=(18, 34, 50, 101, 8, 20, 32, 44, 56))
    norm: str = setting(choices=("batch", "group"))
    version: str = setting(choices=("v1", "v1.5"))
    stem: str = setting(choices=("auto", "imagenet", "small"))
    image_size: int | None = setting(at_least=8, example="32")

    @property
    def has_bottlenecks(self) -> bool:
        """Whether its blocks have three convolutions, of which the first is 1 × 1."""
        return self.depth in (50, 101)

    def input_shape(self) -> tuple[int, int, int]:
        assert self.image_size is not None
        return 3, self.image_size, self.image_size

    def complete(self, data: DataSettings) -> None:
        super().complete(data)
        if self.image_size is None:
            self.image_size = data.image_size or 224
