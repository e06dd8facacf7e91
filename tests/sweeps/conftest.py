"""The store with planted runs, for what a sweep does with the runs of its jobs."""

from tests.compare.conftest import planted

__all__ = ["planted"]
