"""One update: accumulate, reduce, check that it is finite, clip, apply."""
