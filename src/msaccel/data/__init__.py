"""Data sets, fetched, checked and transformed, and the order in which a job uses their samples."""

from msaccel.data.dataset import Batch, Dataset, DatasetSplits, InMemoryDataset
from msaccel.data.load import load_datasets
from msaccel.data.sampler import Indices, Sampler, UpdateIndices, permutation, updates_per_epoch

__all__ = [
    "Batch",
    "Dataset",
    "DatasetSplits",
    "InMemoryDataset",
    "Indices",
    "Sampler",
    "UpdateIndices",
    "load_datasets",
    "permutation",
    "updates_per_epoch",
]
