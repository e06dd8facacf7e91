"""Data sets of image files: listing, scanning, decoding, prefetching, MindRecord."""
