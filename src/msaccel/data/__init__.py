"""Data sets, fetched, checked and transformed, and the order in which a job uses them."""

from msaccel.data.dataset import Data, load
from msaccel.data.in_memory import Split
from msaccel.data.sampler import Indices, Sampler, Update, permutation, updates_per_epoch
from msaccel.data.samples import Batch, Samples

__all__ = [
    "Batch",
    "Data",
    "Indices",
    "Sampler",
    "Samples",
    "Split",
    "Update",
    "load",
    "permutation",
    "updates_per_epoch",
]
