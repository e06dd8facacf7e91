"""Many jobs: Hydra's callback and launchers, search, resuming a sweep, run status."""
