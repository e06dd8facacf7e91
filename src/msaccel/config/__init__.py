"""From Hydra's composition to a checked `Config`: composing, checks, messages, derived values."""
