"""Methods that make training better or faster, measured honestly, on MindSpore."""
