"""Data sets in memory, fetched, checked and transformed, and the order in which a job uses them."""

from msaccel.data.dataset import Data, Split, load
from msaccel.data.order import Indices, Order, Update, permutation, updates_per_epoch

__all__ = [
    "Data",
    "Indices",
    "Order",
    "Split",
    "Update",
    "load",
    "permutation",
    "updates_per_epoch",
]
