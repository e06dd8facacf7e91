"""What a user types: `run.py`'s Hydra entry and the commands of `python -m msaccel`."""
