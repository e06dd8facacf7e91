"""Data sets, fetched, checked and transformed, and the order in which a job uses their samples."""
