"""Sizes of the ResNets that are measured in other frameworks."""

from __future__ import annotations

from msaccel import schema

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
WIDTHS = (64, 128, 256, 512)
SMALL = 64  # pixels: up to here `stem=auto` is the small one


def small_stem(model: schema.ResNetSettings) -> bool:
    assert model.norm == "batch" and model.version == "v1.5" and model.image_size
    return model.stem == "small" or (model.stem == "auto" and model.image_size <= SMALL)
