"""Operators that MindSpore lacks, or has too slowly, on the device at hand."""

from msaccel.kernels.conv import Conv2d

__all__ = ["Conv2d"]
