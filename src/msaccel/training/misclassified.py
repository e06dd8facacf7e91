"""What the network got wrong in the final evaluation: the confusion matrix, and its most confident mistakes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from msaccel.data.dataset import Dataset
from msaccel.distributed.communicator import Communicator
from msaccel.files import atomic_write_figure, atomic_write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure  # takes 0.4 s, which can wait until training is over

CONFUSION, WORST, NUMBERS = "confusion.png", "worst.png", "mistakes.json"
FILES = (CONFUSION, WORST, NUMBERS)
_ROWS = 4  # of the picture, and columns
_MOST = _ROWS**2
_MAX_NUMBERS = 20  # classes up to which the picture has numbers


class Mistakes:
    """The mistakes of one evaluation; each rank sees its share of them.

    Attributes:
        confusion: samples by label (rows) and predicted class (columns).
        worst: probability of the predicted class, number of the sample, predicted class; the most confident first.
    """

    def __init__(self, classes: int) -> None:
        self.classes, self.confusion = classes, np.zeros((classes, classes))
        self.worst = np.full((_MOST, 3), -1.0)

    def add(self, samples: NDArray[np.int64], logits: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        """Counts a batch: numbers of the samples (n,), logits (n, classes), labels (n,)."""
        predicted = logits.argmax(1)
        np.add.at(self.confusion, (labels, predicted), 1)
        wrong = np.flatnonzero(predicted != labels)
        own = logits[wrong].astype(np.float64)
        sure = 1 / np.exp(own - own.max(1, keepdims=True)).sum(1)
        self._keep(np.concatenate([self.worst, np.stack([sure, samples[wrong], predicted[wrong]], 1)]))

    def gather(self, comm: Communicator) -> None:
        """Adds the shares of all ranks."""
        self.confusion = comm.all_sum(self.confusion)
        self._keep(comm.all_gather(self.worst).reshape(-1, 3))

    def _keep(self, found: NDArray[np.generic]) -> None:
        self.worst = found[np.lexsort((found[:, 1], -found[:, 0]))][:_MOST]

    def save(self, folder: Path, split: Dataset) -> None:
        """Writes two pictures and their numbers; that of the worst only if there are mistakes and samples are images.

        Args:
            split: the samples that were evaluated.
        """
        worst = self.worst[self.worst[:, 0] >= 0]
        samples = worst[:, 1].astype(np.int64)
        images, labels = split.batch(samples)
        listed = [
            {"sample": name, "label": int(label), "predicted": int(predicted), "probability": float(sure)}
            for name, label, (sure, _, predicted) in zip(split.names(samples), labels, worst, strict=True)
        ]
        content = {"confusion": self.confusion.astype(int).tolist(), "worst": listed}
        atomic_write_text(folder / NUMBERS, json.dumps(content), durable=False)
        atomic_write_figure(self._matrix(), folder / CONFUSION, dpi=80)
        if listed and len(split.shape) == 3:
            words = [f"{one['predicted']}, not {one['label']} ({one['probability']:.0%})" for one in listed]
            atomic_write_figure(_tiled(images, words), folder / WORST, dpi=80)

    def _matrix(self) -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 6))
        axis = figure.subplots()
        of_label = self.confusion / np.maximum(1, self.confusion.sum(1, keepdims=True))
        axis.imshow(of_label, cmap="Blues", vmin=0, vmax=1)
        axis.set(xlabel="predicted", ylabel="label")
        if self.classes <= _MAX_NUMBERS:
            axis.set(xticks=range(self.classes), yticks=range(self.classes))
            for (label, predicted), count in np.ndenumerate(self.confusion):
                colour = "white" if of_label[label, predicted] > 0.5 else "black"
                axis.text(predicted, label, f"{count:.0f}", ha="center", va="center", fontsize=8, color=colour)
        return figure


def _tiled(images: NDArray[np.float32], words: Sequence[str]) -> Figure:
    """Images in rows, each with its words above; one axis for all, since sixteen axes take a second to draw."""
    from matplotlib.figure import Figure

    _, height, width = images.shape[1:]
    figure = Figure(figsize=(8, 9))
    axis = figure.add_axes((0.02, 0.02, 0.96, 0.96))
    high, wide = 1.3 * height, 1.1 * width
    for place, (image, text) in enumerate(zip(images, words, strict=True)):
        top, left = place // _ROWS * high, place % _ROWS * wide
        axis.imshow(_visible(image), cmap="gray", extent=(left, left + width, top + height, top))
        axis.text(left + width / 2, top - 0.05 * height, text, ha="center", fontsize=9)
    axis.set(xlim=(0, _ROWS * wide), ylim=(_ROWS * high, -0.2 * height))
    axis.set_axis_off()
    return figure


def _visible(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """The network's input (channels, height, width) as brightness from 0 to 1, channels last or none."""
    low, high = image.min(), image.max()
    scaled = (image - low) / (high - low if high > low else 1)
    return scaled[0] if len(scaled) == 1 else scaled[:3].transpose(1, 2, 0)
