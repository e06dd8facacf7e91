"""The size of the images of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msaccel.accel.resize import ResizeSettings

_DIGITS = 9  # to which shares are rounded: 1 − 0.7 is 0.30000000000000004


def scale(settings: ResizeSettings, epoch: int, epochs: int) -> float:
    """The factor of height and width in an epoch, counted from 0, of a job of so many."""
    begun, delay = epoch / epochs, settings.delay_fraction
    growth = round(1 - settings.finetune_fraction - delay, _DIGITS)
    grown = round(begun - delay, _DIGITS)
    if grown >= growth or epoch >= epochs - 1:
        return 1.0
    share = grown / growth if grown > 0 else 0.0
    return settings.initial_scale + (1 - settings.initial_scale) * share


def side(settings: ResizeSettings, full: int, epoch: int, epochs: int) -> int:
    """Height or width in an epoch, from that at full size; a multiple of the increment, or the full size."""
    factor, increment = scale(settings, epoch, epochs), settings.size_increment
    if factor == 1:
        return full
    return min(full, increment * max(1, round(full * factor / increment)))
