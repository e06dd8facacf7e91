"""What this package reads of a job's settings."""

from typing import Protocol


class DataSettings(Protocol):
    """The data settings of a job; read-only here, so a frozen dataclass fits too.

    Attributes:
        name: ``mnist``, ``fashion_mnist`` or ``synthetic``.
        root: the user's own folder with the unzipped files; None for the cache.
        cache: folder that is filled by fetching; ``~`` is expanded.
        transform: ``lenet32`` or ``mlp28``; synthetic images have no transform of their own.
        limit_train: the first so many training images in file order; None for all.
        limit_eval: the same for test images.
        val_fraction: share of the (limited) training images that is split off for validation; 0 for none.
        train_size: synthetic training images.
        test_size: synthetic test images.
        channels: of a synthetic image.
        height: of a synthetic image, in pixels.
        width: of a synthetic image, in pixels.
        classes: labels of synthetic images.
    """

    @property
    def name(self) -> str: ...
    @property
    def root(self) -> str | None: ...
    @property
    def cache(self) -> str: ...
    @property
    def transform(self) -> str: ...
    @property
    def limit_train(self) -> int | None: ...
    @property
    def limit_eval(self) -> int | None: ...
    @property
    def val_fraction(self) -> float: ...
    @property
    def train_size(self) -> int: ...
    @property
    def test_size(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def classes(self) -> int: ...
