"""A run's curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msaccel.files import atomic_write_figure


@dataclass
class Curves:
    """Points (update, value) by metric name."""

    points: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def add(self, update: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.points.setdefault(name, []).append((update, value))

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The points of each metric (points, 2)."""
        return {name: np.array(points, np.float64) for name, points in self.points.items()}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Restores what `state` returned."""
        self.points = {
            name: [(int(update), value) for update, value in found.tolist()] for name, found in state.items()
        }

    def save(self, path: Path, title: str) -> None:
        """Plots loss and accuracy over updates, side by side, as PNG."""
        from matplotlib.figure import Figure  # 0.4 s, not before training; pyplot would set a notebook's backend

        figure = Figure(figsize=(10, 4))
        figure.subplots_adjust(left=0.07, right=0.99, bottom=0.12, wspace=0.15)  # a layout engine would draw it twice
        axes = figure.subplots(1, 2)
        for axis, quantity in zip(axes, ("loss", "accuracy"), strict=True):
            for name, points in self.points.items():
                if name.endswith(f"/{quantity}"):
                    updates, values = zip(*points, strict=True)
                    marker = "o" if len(points) < 20 else ""
                    axis.plot(updates, values, label=name, marker=marker, linewidth=1)
            axis.set(xlabel="update", ylabel=quantity)
            axis.grid(alpha=0.3)
            axis.legend()
        figure.suptitle(title)
        atomic_write_figure(figure, path, dpi=100)
