"""The store with planted runs, for what a sweep does with the runs of its jobs."""

from tests.compare.conftest import empty, planted

__all__ = ["empty", "planted"]
